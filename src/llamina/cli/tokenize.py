"""`llamina tokenize`: text → tokens."""

import json

import click

from llamina.cli.options import json_option, locate, model_options, text_of


@click.command("tokenize")
@click.argument("text", required=False)
@model_options
@click.option("--ids", is_flag=True, help="Print the ids only, on one line.")
@click.option(
    "--special/--no-special",
    default=True,
    show_default=True,
    help="Put the tokens around it that the model expects.",
)
@click.option("--parse-special", is_flag=True, help="Let the text name control tokens.")
@json_option
def command(
    text: str | None,
    model: str | None,
    hf: str | None,
    ids: bool,
    special: bool,
    parse_special: bool,
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
    content = text_of(text, "text")
    path = locate(model, hf)
    from llamina.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_gguf(path)
    tokens = tokenizer.encode(content, add_special=special, parse_special=parse_special)
    pieces = [_piece(tokenizer.token_bytes(token)) for token in tokens]
    if as_json:
        shown = [list(piece) if isinstance(piece, bytes) else piece for piece in pieces]
        click.echo(json.dumps({"tokens": tokens, "pieces": shown, "count": len(tokens)}, ensure_ascii=False))
    elif ids:
        click.echo(" ".join(map(str, tokens)))
    else:
        for token, piece in zip(tokens, pieces, strict=True):
            click.echo(f"{token:7}  {piece!r}")


def _piece(content: bytes) -> str | bytes:
    """What a token adds to a text: text, or bytes where it ends in the middle of a character."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content
