"""Bytes of pictures and sounds as they are given, and no more of them than may be."""

import os
from dataclasses import dataclass

from llamina.errors import RequestError


@dataclass(frozen=True, slots=True)
class Source:
    """Media of one kind: what messages call one of them, and the error for one that cannot be read."""

    noun: str
    error: type[RequestError]

    def contents(self, path: "str | os.PathLike[str]", most: int) -> bytes:
        """What a file holds. Raises the error if it cannot be read, or holds more bytes than may be."""
        try:
            with open(path, "rb") as file:
                data, size = file.read(most + 1), os.fstat(file.fileno()).st_size
        except (OSError, ValueError) as error:
            raise self.error(f"the {self.noun} {os.fspath(path)!r} cannot be read: {error}") from error
        self.check(max(len(data), size), most)
        return data

    def check(self, nbytes: int, most: int) -> None:
        """Raise the error for more bytes than may be."""
        if nbytes > most:
            raise self.error(f"the {self.noun} has {nbytes} bytes: {most} are the most")
