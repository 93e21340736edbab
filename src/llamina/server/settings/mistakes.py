"""What is wrong with a configuration, and where: all of it at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from llamina.errors import RequestError


@dataclass(frozen=True)
class Mistake:
    """`where` is a file with a line, a flag or an environment variable."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class InvalidConfig(RequestError):
    """The configuration has mistakes; `mistakes` are all of them."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("; ".join(map(str, mistakes)))
        self.mistakes = mistakes


def unknown(name: str, known: Iterable[str], what: str = "setting") -> str:
    """That there is no such name, with the one that was probably meant."""
    known = sorted(known)
    near = get_close_matches(name, known, 1)
    return f"there is no {what} {name}: " + (f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}")
