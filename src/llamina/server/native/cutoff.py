"""When `/completion` ends an answer by rules that are llama.cpp's own: a time limit, and a least indentation."""

import time


class Cutoff:
    """Text in, text out; `done` once a rule says so."""

    def __init__(self, milliseconds: int, indent: int) -> None:
        self._seconds, self._indent = milliseconds / 1000, indent
        self._first: float | None = None
        self._newline = False
        self._blank: int | None = None  # how much white space a line after the first begins with, until more follows
        self.done = False

    def push(self, text: str) -> str:
        """The text, cut before the words of a line that is indented too little."""
        self._first = self._first or time.perf_counter()
        if self._indent:
            text = self._indented(text)
        self._newline = self._newline or "\n" in text
        if self._seconds and self._newline and time.perf_counter() - self._first > self._seconds:
            self.done = True
        return text

    def _indented(self, text: str) -> str:
        for at, character in enumerate(text):
            if character == "\n":
                self._blank = 0
            elif self._blank is not None and character in " \t":
                self._blank += 1
            elif self._blank is not None:
                if self._blank < self._indent:
                    self.done = True
                    return text[:at]
                self._blank = None
        return text
