"""The options that constrain an answer to a grammar."""

from typing import Any

import click

from llamina.cli.options import Function, decode

FLAGS = ("grammar", "grammar_file", "json_schema", "json_schema_file", "regex", "choices", "lark_file")


def constraint_options(function: Function) -> Function:
    """`--grammar`, `--json-schema`, `--regex`, `--choice`, and the same from files; Lark from a file only."""
    text, file = {"metavar": "TEXT"}, {"type": click.File("rb")}
    for flags, kind, description in reversed(
        [
            (("--grammar",), text, "GBNF grammar that the answer must follow."),
            (("--grammar-file",), file, "The same, from a file."),
            (("-j", "--json-schema"), text, "JSON schema that the answer must follow; {} allows any JSON."),
            (("-jf", "--json-schema-file"), file, "The same, from a file."),
            (("--regex",), text, "Regular expression that the whole answer must match."),
            (
                ("--choice", "choices"),
                text | {"multiple": True},
                "One of the texts that the answer may be. May be repeated.",
            ),
            (("--lark-file",), file, "Grammar in llguidance's dialect of Lark, from a file."),
        ]
    ):
        function = click.option(*flags, **kind, help=description)(function)  # type: ignore[arg-type]
    return function


def take_constraint(options: dict[str, Any]) -> dict[str, Any]:
    """Takes these options out of `options`; what was given, by the names of the request's fields."""
    found: dict[str, Any] = {}
    for flag in FLAGS:
        value, name = options.pop(flag), flag.removesuffix("_file")
        if value in (None, ()):
            continue
        if name in found:
            raise click.UsageError(f"--{name.replace('_', '-')} is given twice: as text and as a file")
        found[name] = decode(value.read(), value.name) if flag.endswith("_file") else value
    return found
