"""Exceptions that nobody expected, as the log tells of them."""

from pathlib import Path
from traceback import extract_tb

FRAMES = 8  # of a traceback, that are told


def where(error: BaseException) -> str:
    """An exception's class and where it was raised. Its message may quote what a client sent, so it is not told."""
    frames = [f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in extract_tb(error.__traceback__)]
    return f"{type(error).__name__} in {' > '.join(frames[-FRAMES:]) or 'an unknown place'}"
