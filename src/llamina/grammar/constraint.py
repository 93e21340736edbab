"""The state of a grammar along an answer: which tokens it allows next."""

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

WORTH_A_THREAD = 300e-6  # seconds: handing a mask to a thread and back costs as much where all cores are busy


class Constraint:
    """The position of an answer in its grammar. The mask of the next token may be computed in another thread."""

    def __init__(self, matcher: llguidance.LLMatcher, matcher_vocab: int, vocab: int) -> None:
        """`matcher_vocab` is the number of tokens that the matcher knows, `vocab` that of the model's logits."""
        self._matcher = matcher
        self._start = matcher.deep_copy()
        self._matcher_vocab, self._vocab = matcher_vocab, vocab
        self._mask = np.zeros(4 * -(-max(matcher_vocab, vocab) // 32), np.uint8)
        self._penalties = np.empty((len(self._mask), 8), np.float32)
        self._future: Future[None] | None = None
        self._ready = False  # whether the mask is that of the next token
        # CPU time of the last mask: wall time would count the wait for a core, and keep slow masks in the thread.
        self._mask_seconds = math.inf  # the first mask can be computed beside the prefill
        self._mask_needed = True  # whether the last token needed one

    def begin(self, executor: Executor) -> None:
        """Compute the next mask in a thread if that takes long; no method but `accept` and `apply` may follow."""
        slow = self._mask_needed and self._mask_seconds > WORTH_A_THREAD
        if slow and not self._ready and self._future is None:
            self._future = executor.submit(self._compute_mask)

    def _compute_mask(self) -> None:
        """Compute the mask of the next token, and from it what to add to logits. The matcher releases the GIL."""
        begun = time.thread_time()
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, 4 * -(-self._matcher_vocab // 32))
        np.take(PENALTIES, self._mask, axis=0, out=self._penalties, mode="clip")
        self._mask_seconds, self._ready = time.thread_time() - begun, True

    def _join(self) -> None:
        """Wait for the mask that a thread is computing."""
        if self._future is not None:
            self._future.result()
            self._future = None

    def mask(self) -> npt.NDArray[np.uint32]:
        """Return a bit for each token, whether the grammar allows it next; overwritten later. Raises InvalidGrammar."""
        self._join()
        if not self._ready:
            self._compute_mask()
        self._mask_needed = True
        _check(self._matcher)
        return self._mask.view(np.uint32)[: -(-self._vocab // 32)]

    def apply(self, logits: npt.NDArray[np.float32]) -> None:
        """Set the logits of tokens that the grammar does not allow next to -inf. Raises InvalidGrammar."""
        self.mask()
        logits += self._penalties.reshape(-1)[: self._vocab]

    def accept(self, token: int) -> bool:
        """Advance by a token if the grammar allows it, without a mask; return whether it does. Raises InvalidGrammar.

        This takes about a microsecond, a mask 10 to 1000.
        """
        self._join()
        if token >= self._matcher_vocab or not self._matcher.try_consume_tokens([token]):
            _check(self._matcher)
            return False
        self._ready = self._mask_needed = False
        return True

    def consume(self, token: int) -> None:
        """Advance by a token. Raises InvalidGrammar if the grammar does not allow it."""
        self._ready = False
        self._matcher.consume_token(token)
        _check(self._matcher)

    def restart(self, tokens: Sequence[int]) -> None:
        """Advance by these tokens from the beginning. Raises InvalidGrammar, and does not move, if they do not fit."""
        matcher = self._start.deep_copy()
        matcher.consume_tokens(list(tokens))
        _check(matcher)
        self._join()
        self._matcher, self._ready = matcher, False

    def forced(self) -> list[int]:
        """Advance by the tokens that the grammar leaves no choice about, and return them, in canonical tokenization."""
        tokens = [] if self._matcher.is_stopped() else self._matcher.compute_ff_tokens()
        if tokens:
            self._ready = False
            self._matcher.consume_tokens(tokens)
            _check(self._matcher)
        return tokens

    @property
    def done(self) -> bool:
        """Whether the answer is complete and nothing may follow."""
        return self._matcher.is_stopped()

    @property
    def accepting(self) -> bool:
        """Whether the answer may end here."""
        return self._matcher.is_accepting()

    def fresh(self) -> "Constraint":
        """Return another at the beginning of the same grammar."""
        return Constraint(self._start.deep_copy(), self._matcher_vocab, self._vocab)


def _check(matcher: llguidance.LLMatcher) -> None:
    if matcher.is_error():
        raise InvalidGrammar(f"the grammar cannot be followed: {one_line(matcher.get_error())}")


def one_line(message: str) -> str:
    """Return llguidance's error message without its drawing and its dump of states."""
    return " ".join(message.split("<state>")[0].split())
