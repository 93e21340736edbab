"""How a request wants tokens to be drafted."""

from typing import Literal, get_args

from llamina.errors import RequestError

Mode = Literal["auto", "off", "ngram", "draft"]
Speculate = Mode | int  # a number: that many tokens are drafted in every step, whether or not it pays


def check_mode(mode: object) -> None:
    """Raise RequestError for anything but a mode or a number of draft tokens."""
    number = isinstance(mode, int) and not isinstance(mode, bool) and mode >= 1
    if not number and mode not in get_args(Mode):
        expected = f"{', '.join(get_args(Mode))} or a number of tokens"
        raise RequestError(f"speculate is {mode!r}: it must be {expected}", "speculate")
