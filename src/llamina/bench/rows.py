"""A record as rows of plain values, for spreadsheets: CSV."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

CONDITIONS = ("cpu", "cores", "python")  # of the machine, in every row


def rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each sample of a record that has some, else for each result, with the conditions in front.

    Fields of a field are `field.name`; numbers of a list stand in one cell with spaces between them.
    """
    machine, settings = record["machine"], record.get("settings", {})
    known = {"llamina": record["llamina"], "record": record["kind"], "time": record["time"]}
    known |= {name: machine[name] for name in CONDITIONS}
    known |= {"file": record["file"]["name"]} if "file" in record else {}
    known |= {f"settings.{name}": value for name, value in _plain(settings)}
    return [{**known, **dict(_plain(result))} for result in record.get("samples") or record["results"]]


def csv_text(record: Mapping[str, Any]) -> str:
    """The rows as CSV with a line of names; a field that a row lacks is empty."""
    found = rows(record)
    names = list(dict.fromkeys(name for row in found for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue()


def _plain(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", found) for inner, found in _plain(value))
        elif isinstance(value, list | tuple):
            yield name, " ".join(map(str, value))
        else:
            yield name, value
