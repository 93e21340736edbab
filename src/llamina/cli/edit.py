"""`llamina edit`: the metadata of a GGUF file."""

import json
from pathlib import Path
from typing import Any

import click

from llamina.cli.options import json_option
from llamina.cli.terminal import Meter, tidy


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        key, sign, text = value.partition("=")
        if not (sign and key):
            raise click.BadParameter(f"{value!r} is not {param.metavar}")
        if key in pairs:
            raise click.BadParameter(f"{key} is given twice: give it once")
        pairs[key] = text
    return pairs


@click.command("edit")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("out", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--set", "given", metavar="KEY=VALUE", multiple=True, callback=_pairs, help="Give a key a value.")
@click.option(
    "--set-file",
    "from_files",
    metavar="KEY=FILE",
    multiple=True,
    callback=_pairs,
    help="Give a key the text in a file, such as a chat template.",
)
@click.option(
    "--set-type",
    "types",
    metavar="KEY=TYPE",
    multiple=True,
    callback=_pairs,
    help="The type of a key: uint8 … int64, float32, float64, bool, string; of arrays, uint32[] and so on. "
    "By default the one it has, or the one that the value looks like.",
)
@click.option("--remove", metavar="KEY", multiple=True, help="Take a key out.")
@click.option("--rename", metavar="OLD=NEW", multiple=True, callback=_pairs, help="Give a key another name.")
@click.option("--in-place", is_flag=True, help="Replace IN instead of writing OUT.")
@click.option("-f", "--force", is_flag=True, help="Overwrite OUT if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print the path only.")
@json_option
def command(
    source: Path,
    out: Path | None,
    given: dict[str, str],
    from_files: dict[str, str],
    types: dict[str, str],
    remove: tuple[str, ...],
    rename: dict[str, str],
    in_place: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write IN with other metadata to OUT, and print the path of the file. All options may be repeated.

    Values are written as they are; those of arrays as JSON. Tensors and all other keys stay as they are. The file
    appears when it is complete, also with --in-place. Of a split model, the first shard has the metadata.

    \b
    Examples:
      llamina edit model.gguf new.gguf --set general.name="My model" --remove general.url
      llamina edit model.gguf --in-place --set llama.context_length=8192
      llamina edit model.gguf new.gguf --set-file tokenizer.chat_template=template.jinja
      llamina edit model.gguf new.gguf --set my.sizes="[1, 2]" --set-type "my.sizes=uint16[]"
      llamina edit model.gguf new.gguf --rename my.old=my.new
    """
    from llamina.files.edit import edit, kind_named, parse_value
    from llamina.gguf import GGUF

    if not (given or from_files or types or remove or rename):
        raise click.UsageError("there is nothing to edit: give --set, --set-file, --set-type, --remove or --rename")
    if (out is None) != in_place:
        raise click.UsageError("give either OUT or --in-place")
    kinds = {key: kind_named(name) for key, name in types.items()}
    with GGUF.open(source) as file:
        known = file.metadata_types
    values: dict[str, Any] = {
        key: parse_value(key, text, kinds.get(key) or known.get(key)) for key, text in given.items()
    }
    for key, name in from_files.items():
        if key in values:
            raise click.UsageError(f"{key} is given twice: give it once")
        values[key] = _text(Path(name))
    with tidy(), Meter("bytes", quiet or as_json, doing="writing") as meter:
        path = edit(
            source, out, set=values, types=kinds, remove=remove, rename=rename, in_place=in_place, overwrite=force,
            progress=meter,
        )  # fmt: skip
    if as_json:
        told = {"path": str(path), "set": values, "removed": list(remove), "renamed": rename, "types": types}
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        click.echo(path)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read as text: {error}") from None
