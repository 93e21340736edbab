"""Which bytes of a partial file have come: a line for each stretch, so that a kill costs the last line at the most."""

import json
import os
from pathlib import Path

Span = tuple[int, int]  # from the first byte up to, not including, the last


class Journal:
    """The stretches of one file, beside it. `size` and `tag` say of which version of which file they are."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size, self.tag = 0, ""
        self.spans: list[Span] = []
        try:
            lines = path.read_bytes().split(b"\n")[:-1]  # one without its end was cut short
            head = json.loads(lines[0])
            self.size, self.tag = int(head["size"]), str(head["tag"])
            self.spans = _merged([_span(line) for line in lines[1:]])
        except (OSError, ValueError, LookupError, TypeError):  # none, or not one of ours: nothing has come
            self.size, self.tag, self.spans = 0, "", []

    def begin(self, size: int, tag: str, present: int = 0) -> None:
        """Note stretches of this file from now on; those of the same one stay, within the `present` bytes of it."""
        same = tag != "" and (size, tag) == (self.size, self.tag)
        self.spans = [(start, min(stop, present)) for start, stop in self.spans if start < present] if same else []
        self.size, self.tag = size, tag
        lines = [json.dumps({"size": size, "tag": tag}), *(f"{start} {stop}" for start, stop in self.spans)]
        temporary = self._path.with_name(f"{self._path.name}.new")
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(temporary, self._path)

    def add(self, start: int, stop: int) -> None:
        """These bytes have been written."""
        with self._path.open("ab") as file:
            file.write(f"{start} {stop}\n".encode())

    def missing(self) -> list[Span]:
        """What has not come, in order."""
        gaps, at = [], 0
        for start, stop in self.spans:
            if start > at:
                gaps.append((at, start))
            at = stop
        return [*gaps, (at, self.size)] if at < self.size else gaps


def _span(line: bytes) -> Span:
    start, stop = map(int, line.split())
    if not 0 <= start < stop:
        raise ValueError(line)
    return start, stop


def _merged(spans: list[Span]) -> list[Span]:
    """In order, with those that touch each other as one."""
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found
