"""The engine's errors in the words of the command line: the same fact, and the options that help."""

from collections.abc import Iterator
from contextlib import contextmanager

from llamina.errors import CapacityError, ContextTooLong, RequestError

SHIFT = "raise -c, use --context-shift to drop old tokens, or shorten the prompt"


@contextmanager
def advised(too_long: str = "raise -c, or shorten the text") -> Iterator[None]:
    """Replaces advice for Python programs. `too_long` is what helps where a text does not fit the context."""
    try:
        yield
    except ContextTooLong as error:
        raise ContextTooLong(f"{_fact(error)}: {too_long}", error.param) from error
    except CapacityError as error:
        if "load the model" not in str(error):
            raise
        raise CapacityError(f"{_fact(error)}: use a smaller -c, or another --kv-type") from error
    except RequestError as error:
        if error.param != "n_keep":
            raise
        fact = _fact(error).replace("n_keep", "--keep")
        raise RequestError(f"{fact}: keep fewer, or raise -c", error.param) from error


def _fact(error: Exception) -> str:
    """A message without its advice, which follows the first colon."""
    return str(error).partition(": ")[0]
