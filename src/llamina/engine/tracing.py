"""Seeing inside a forward pass: what each step of a plan makes of some tokens, for debugging and for statistics."""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from llamina.backends import Program
from llamina.cache.pages import Lease
from llamina.engine.runner.model_runner import ModelRunner
from llamina.errors import RequestError
from llamina.ops.batch import Batch, Span
from llamina.ops.reference import Array


@runtime_checkable
class Traced(Protocol):
    """A program whose intermediate values can be seen."""

    def trace(self, batch: Batch, wanted: Container[int] | None = None) -> Iterator[tuple[int, dict[int, Array]]]:
        """The index of each step after it ran, and its outputs (the `wanted`, if given) by the ids of their values."""
        ...


def traced(program: Program) -> Traced:
    """The program itself. Raises RequestError if its values cannot be seen."""
    if not isinstance(program, Traced):
        raise RequestError(f"{type(program).__name__} cannot be traced: use backend='cpu'", "backend")
    return program


@contextmanager
def seated(runner: ModelRunner) -> Iterator[Lease]:
    """A place for one sequence. Raises RequestError if there is none."""
    lease = runner.pages.admit()
    if lease is None:
        raise RequestError("the engine is busy: try again when it has nothing to do")
    try:
        yield lease
    finally:
        runner.pages.release(lease)


def lay_out(runner: ModelRunner, lease: Lease, tokens: Sequence[int], start: int, outputs: Sequence[int]) -> Batch:
    """The batch of a step that computes `tokens`, from position `start` on, of the sequence with this lease.

    `outputs` are the wanted ones, as offsets into `tokens`. Raises RequestError if there are no pages for it.
    """
    if not runner.pages.extend(lease, start, start + len(tokens)):
        raise RequestError("the engine has no free pages: load the model with more cache_tokens", "cache_tokens")
    window = runner.pages.window_pages(lease)
    return runner.batch.fill([Span(tokens, start, lease.pages, lease.slot, outputs, window_pages=window)])
