"""What may come next in an answer that follows a grammar."""

import math
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future

import llguidance
import numpy as np
import numpy.typing as npt

from llamina.errors import InvalidGrammar

# For each byte of a mask, what to add to eight logits: 0 where a token is allowed, -inf where it is not.
PENALTIES = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), 0, -np.inf)
PENALTIES = PENALTIES.astype(np.float32)

WORTH_A_THREAD = 300e-6  # seconds: handing a mask over and back costs as much where all cores are busy


class Constraint:
    """Where an answer stands in its grammar. The mask of the next token may be worked out in another thread."""

    def __init__(self, matcher: llguidance.LLMatcher, words: int, vocab: int) -> None:
        """`words` tokens are in the matcher's vocabulary, `vocab` in the model's."""
        self._matcher = matcher
        self._start = matcher.deep_copy()
        self._vocab = vocab
        self._mask = np.zeros(4 * -(-max(words, vocab) // 32), np.uint8)
        self._penalties = np.empty((len(self._mask), 8), np.float32)
        self._words = words
        self._future: Future[None] | None = None
        self._seconds = math.inf  # that the last mask took; the first one waits for a prompt anyway
        self._ready = False

    def begin(self, executor: Executor) -> None:
        """Work the mask out meanwhile, if that may take a while; nothing else may be asked before `apply`."""
        if not self._ready and self._future is None and self._seconds > WORTH_A_THREAD:
            self._future = executor.submit(self._fill)

    def _fill(self) -> None:
        """The mask of the next token, and from it what to add to logits; others may hold the interpreter's lock."""
        begun = time.perf_counter()
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, 4 * -(-self._words // 32))
        np.take(PENALTIES, self._mask, axis=0, out=self._penalties, mode="clip")
        self._seconds, self._ready = time.perf_counter() - begun, True

    def apply(self, logits: npt.NDArray[np.float32]) -> None:
        """Tokens that the grammar does not allow next get -inf."""
        self._finish_mask()
        if not self._ready:
            self._fill()
        _check(self._matcher)
        logits += self._penalties.reshape(-1)[: self._vocab]

    def _finish_mask(self) -> None:
        if self._future is not None:
            self._future.result()
            self._future = None

    def consume(self, token: int) -> None:
        """Go on by a token that was chosen."""
        self._ready = False
        self._matcher.consume_token(token)
        _check(self._matcher)

    def restart(self, tokens: Sequence[int]) -> None:
        """Stand where these tokens lead from the beginning; if the grammar does not allow them, stay."""
        matcher = self._start.deep_copy()
        matcher.consume_tokens(list(tokens))
        _check(matcher)
        self._finish_mask()
        self._matcher, self._ready = matcher, False

    def forced(self) -> list[int]:
        """Tokens that must come next, spelt as the tokenizer would; the constraint goes on by them."""
        tokens = [] if self._matcher.is_stopped() else self._matcher.compute_ff_tokens()
        if tokens:
            self._ready = False
            self._matcher.consume_tokens(tokens)
            _check(self._matcher)
        return tokens

    @property
    def done(self) -> bool:
        """Nothing can come after what there is."""
        return self._matcher.is_stopped()

    @property
    def accepting(self) -> bool:
        """The answer may end here."""
        return self._matcher.is_accepting()

    def fresh(self) -> "Constraint":
        """Another that stands at the beginning."""
        return Constraint(self._start.deep_copy(), self._words, self._vocab)


def _check(matcher: llguidance.LLMatcher) -> None:
    if matcher.is_error():
        raise InvalidGrammar(f"the grammar cannot be followed: {one_line(matcher.get_error())}")


def one_line(message: str) -> str:
    """What llguidance says, without its drawings and its state."""
    return " ".join(message.split("<state>")[0].split())
