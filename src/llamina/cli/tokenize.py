"""`llamina tokenize`: text → tokens."""

import json
from typing import Any

import click

from llamina.cli.options import decode, json_option, locate, model_options, text_of


@click.command("tokenize")
@click.argument("text", required=False)
@click.option("-p", "--prompt", metavar="TEXT", help="The text, instead of the argument.")
@click.option("-f", "--file", type=click.File("rb"), help="The text, from a file.")
@click.option("--stdin", is_flag=True, hidden=True)  # without a text it is read in any case
@model_options
@click.option("--ids", is_flag=True, help="Print the ids only, on one line.")
@click.option(
    "--special/--no-special",
    " /--no-bos",
    default=True,
    show_default=True,
    help="Put the tokens around it that the model expects.",
)
@click.option("--parse-special/--no-parse-special", help="Let the text name control tokens.")
@click.option("--show-count", is_flag=True, help="Print the number of tokens at the end.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), hidden=True)
@json_option
def command(
    text: str | None,
    prompt: str | None,
    file: Any,
    stdin: bool,
    model: str | None,
    hf: str | None,
    ids: bool,
    special: bool,
    parse_special: bool,
    show_count: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Show the tokens of TEXT, or of what is piped in, each with the text that it stands for.

    A token that is no whole character is shown as bytes, like b'\\xf0\\x9f'; in JSON, as a list of their values.

    \b
    Examples:
      llamina tokenize "Hello world"
      llamina tokenize -m model.gguf --ids --no-special "Hello world"
      llamina tokenize --parse-special "<|im_start|>user" --json
    """
    given = [text, prompt, decode(file.read(), file.name) if file else None]
    if len(found := [part for part in given if part is not None]) + stdin > 1:
        raise click.UsageError("the text is given twice: give an argument, -p, -f or --stdin")
    content = text_of(found[0] if found else None, "text")
    path = locate(model, hf)
    from llamina.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_gguf(path)
    tokens = tokenizer.encode(content, add_special=special, parse_special=parse_special)
    pieces = [_piece(tokenizer.token_bytes(token)) for token in tokens]
    if as_json or output == "json":
        shown = [list(piece) if isinstance(piece, bytes) else piece for piece in pieces]
        click.echo(json.dumps({"tokens": tokens, "pieces": shown, "count": len(tokens)}, ensure_ascii=False))
    elif ids:
        click.echo(" ".join(map(str, tokens)))
    else:
        for token, piece in zip(tokens, pieces, strict=True):
            click.echo(f"{token:7}  {piece!r}")
    if show_count and not (as_json or output == "json"):  # which has it
        click.echo(f"{len(tokens)} tokens")


def _piece(content: bytes) -> str | bytes:
    """What a token adds to a text: text, or bytes where it ends in the middle of a character."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content
