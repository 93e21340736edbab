"""`llamina detokenize`: tokens → text."""

import re

import click

from llamina.cli.llama_cpp import always
from llamina.cli.options import locate, model_options, text_of


@click.command("detokenize")
@click.argument("ids", nargs=-1, metavar="IDS...")
@model_options
@always("--ids", "ids_follow")
@click.option("--special", is_flag=True, help="Write control tokens as the vocabulary calls them.")
def command(ids: tuple[str, ...], model: str | None, hf: str | None, special: bool) -> None:
    """Show the text of token IDS, or of those piped in.

    \b
    Examples:
      llamina detokenize 19556 905
      llamina tokenize --ids "Hello world" | llamina detokenize
    """
    tokens = _numbers(text_of(" ".join(ids) or None, "list of token ids"))
    path = locate(model, hf)
    from llamina.tokenizer import Tokenizer

    click.echo(Tokenizer.from_gguf(path).decode(tokens, skip_special=not special))


def _numbers(text: str) -> list[int]:
    """Whole numbers between spaces, commas or brackets."""
    words = re.split(r"[\s,\[\]]+", text.strip(" \t\r\n,[]"))
    odd = next((word for word in words if not re.fullmatch(r"[0-9]{1,9}", word)), None)
    if odd is not None:
        raise click.UsageError(f"{odd!r} is not a token id: write whole numbers, like 19556 905")
    return [int(word) for word in words]
