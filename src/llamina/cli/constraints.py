"""The flags that say what an answer must look like."""

from typing import Any

import click

from llamina.cli.options import Function, decode

FLAGS = ("grammar", "grammar_file", "json_schema", "json_schema_file", "regex", "choices", "lark_file")


def constraint_options(function: Function) -> Function:
    """`--grammar`, `--json-schema`, `--regex`, `--choice`, and files of the first two and of Lark."""
    text, file = {"metavar": "TEXT"}, {"type": click.File("rb")}
    for flags, kind, told in reversed(
        [
            (("--grammar",), text, "A GBNF grammar that the answer follows."),
            (("--grammar-file",), file, "The same from a file."),
            (("-j", "--json-schema"), text, "A JSON schema that the answer follows; {} is any JSON."),
            (("-jf", "--json-schema-file"), file, "The same from a file."),
            (("--regex",), text, "A regular expression that the answer matches as a whole."),
            (("--choice", "choices"), text | {"multiple": True}, "What the answer may be; several times."),
            (("--lark-file",), file, "A grammar in llguidance's dialect of Lark."),
        ]
    ):
        function = click.option(*flags, **kind, help=told)(function)  # type: ignore[arg-type]
    return function


def take_constraint(options: dict[str, Any]) -> dict[str, Any]:
    """The flags above taken out of the options, by the names that requests know."""
    found: dict[str, Any] = {}
    for flag in FLAGS:
        value, name = options.pop(flag), flag.removesuffix("_file")
        if value in (None, ()):
            continue
        if name in found:
            raise click.UsageError(f"--{name.replace('_', '-')} is given twice: as text and as a file")
        found[name] = decode(value.read(), value.name) if flag.endswith("_file") else value
    return found
