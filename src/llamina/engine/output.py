"""What a request said so far: its tokens, and their text as it becomes certain."""

from collections.abc import Iterable, Sequence

from llamina.engine.stops import StopStrings
from llamina.tokenizer import Tokenizer


class Output:
    """Tokens in, text out. Half a character, and what may become a stop string, is held back."""

    def __init__(
        self,
        stop: Sequence[str],
        markers: Sequence[str] = (),
        stop_tokens: Iterable[int] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self.tokens: list[int] = []
        self.pieces: list[str] = []  # text, in the order it was made
        self.read = 0  # how many of the pieces the caller has taken
        self._stop, self._include_stop = stop, include_stop
        self._stop_tokens, self._min_tokens = frozenset(stop_tokens), min_tokens
        self._markers = markers
        self._stops = StopStrings(stop, include_stop)

    def begin(self, tokenizer: Tokenizer, ignore_eos: bool) -> None:
        """Nothing can be said before this."""
        self._tokenizer = tokenizer
        self.ends = self._stop_tokens | (frozenset() if ignore_eos else tokenizer.eog)
        self._shown = frozenset(tokenizer.token_ids(self._markers))
        self.rewind(0)

    @property
    def ended(self) -> bool:
        """Whether the last token, or a stop string, asks for an end."""
        return self._stops.hit or self._at_end

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended it, if one did."""
        return self._stops.found or None

    @property
    def spoken(self) -> list[int]:
        """The tokens without the one that asked for an end."""
        return self.tokens[:-1] if self._at_end else self.tokens

    @property
    def _at_end(self) -> bool:
        return bool(self.tokens) and self.tokens[-1] in self.ends

    def take(self) -> str:
        """The next piece that the caller has not taken."""
        self.read += 1
        return self.pieces[self.read - 1]

    def push(self, token: int) -> str:
        """The text that a token makes certain, often none."""
        self.tokens.append(token)
        text = "" if token in self.ends else self._detokenizer.push(token)
        return self._say(text if len(self.tokens) <= self._min_tokens else self._stops.push(text))

    def finish(self) -> str:
        """What was held back."""
        return self._say(self._stops.push(self._detokenizer.flush()) + self._stops.flush())

    def rewind(self, n: int) -> None:
        """Take the last n tokens back, with their text."""
        tokens = self.tokens[: len(self.tokens) - n]
        self.tokens, self.pieces = [], []
        self._stops = StopStrings(self._stop, self._include_stop)
        self._detokenizer = self._tokenizer.stream(continued=True, shown=self._shown)
        for token in tokens:
            self.push(token)
        self.read = min(self.read, len(self.pieces))

    def _say(self, text: str) -> str:
        if text:
            self.pieces.append(text)
        return text
