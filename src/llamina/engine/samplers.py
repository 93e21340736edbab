"""Samplers for an engine's requests, and what they share."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from llamina.engine.sequence import Sequence
from llamina.grammar import Source, Triggers
from llamina.sampling import BreakerTable, Sampler, word_tokens
from llamina.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llamina.grammar.compiler import Compiler
    from llamina.grammar.constraint import Constraint
    from llamina.grammar.lazy import Lazy


class Samplers:
    """Makes them, for any thread, and has the masks of grammars computed while the model runs."""

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._lock = Lock()  # what all share is made once

    def make(self, sequence: Sequence) -> Sampler:
        """The sampler of a request, after what it has said so far."""
        request = sequence.request
        params = request.sampling
        return Sampler(
            params,
            self._vocab,
            stream=request.index,
            suppressed=self._tokenizer.suppressed,
            breakers=self._breakers(params.dry_sequence_breakers) if params.dry_multiplier else None,
            processor=request.logits_processor,
            constraint=self._constraint(sequence),
            ends=sequence.output.ends,
            ends_from=len(request.prompt) + request.min_tokens if request.min_tokens else 0,
            words=word_tokens(request.bad_words, self._tokenizer) if request.bad_words else (),
            words_from=len(request.prompt),
            on_host=["reasoning_limit"] if request.reasoning_limit is not None else [],
        )

    def _constraint(self, sequence: Sequence) -> "Constraint | Lazy | None":
        request = sequence.request
        if request.source is None:
            return None
        constraint = self._compiler.constraint(request.source)
        found = constraint if request.triggers is None else self._lazy(constraint, request.triggers, request.markers)
        found.restart(sequence.generated)
        return found

    def _lazy(self, constraint: "Constraint", triggers: Triggers, markers: Iterable[str]) -> "Lazy":
        from llamina.grammar.lazy import Lazy

        return Lazy(constraint, triggers, self._tokenizer, frozenset(self._tokenizer.token_ids(markers)))

    def check(self, source: Source) -> None:
        """Raises what is wrong with a grammar."""
        self._compiler.constraint(source)

    def prefetch_masks(self, sequences: Iterable[Sequence]) -> None:
        """Begin to compute the masks of grammars that the next tokens need, in a thread beside the model."""
        for sequence in sequences:
            if sequence.sampler is not None and sequence.sampler.constraint is not None:
                sequence.sampler.constraint.begin(self._executor)

    @cached_property
    def _breakers(self) -> BreakerTable:
        return BreakerTable(self._tokenizer)

    @property
    def _compiler(self) -> "Compiler":
        with self._lock:
            return self._made_compiler

    @cached_property
    def _made_compiler(self) -> "Compiler":
        """Made on first use: the vocabulary is prepared, which takes a moment."""
        from llamina.grammar.compiler import Compiler

        return Compiler(self._tokenizer, self._vocab)

    @cached_property
    def _executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "llamina-grammar")

    def close(self) -> None:
        """End the thread."""
        if "_executor" in self.__dict__:
            self._executor.shutdown()
