"""The heart: schedule, run, sample, append."""

import time
from bisect import insort
from collections import deque
from collections.abc import Iterable
from itertools import accumulate, count

import numpy as np
import numpy.typing as npt

from llamina.cache import Lease, Pages
from llamina.engine.delta import Delta, FinishReason
from llamina.engine.metrics import Metrics
from llamina.engine.request import Request
from llamina.engine.runner.model_runner import ModelRunner
from llamina.engine.runner.programs import computed
from llamina.engine.schedule import Slice, requeue, schedule
from llamina.engine.sequence import Sequence
from llamina.engine.speculation.draft_length import Costs
from llamina.engine.speculation.speculation import Speculation
from llamina.errors import CapacityError, QueueFull, RequestError
from llamina.ops.batch import Span

HEAD_START = 64  # how many earlier requests of priority 0 one of priority 1 overtakes; so nobody waits for ever
MAX_WAITING = 4096

Rows = npt.NDArray[np.float32]


class Core:
    """The sequences of one model and the steps that advance them. Not for several threads at once: see `Stepper`."""

    def __init__(self, runner: ModelRunner, max_waiting: int = MAX_WAITING) -> None:
        self.runner = runner
        self.pages, self.limits, self.budget = runner.pages, runner.limits, runner.budget
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.speculation = Speculation(self)
        self.costs = Costs()
        self.metrics = Metrics(self._gauges)
        self.max_waiting = max_waiting
        self._arrivals = count()
        self._suspects: deque[Sequence] = deque()  # of a failed step: each is computed alone once
        self._acquitted = False  # all suspects were, and none of them failed

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    # ---- the step ----------------------------------------------------------------------------------------

    def step(self) -> list[Delta]:
        """Advance every sequence that has a place in the next batch; their deltas, which listeners were told."""
        self.runner.check_open()
        self._fail_unfit()
        while self._suspects:
            if (suspect := self._suspects.popleft()) in self.waiting:
                return self._step_alone(suspect)
        self.speculation.draft()
        before = list(self.running)
        slices = schedule(self.running, self.waiting, self.pages, self.budget)
        self.metrics.step(slices, preempted=sum(s.lease is None for s in before))
        return self._run(slices)

    def _run(self, slices: list[Slice]) -> list[Delta]:
        try:
            rows = self._compute(slices)
        except BaseException as error:
            for s in slices:  # nobody knows how far these came: they are computed again
                if s.sequence.lease is not None:
                    requeue(s.sequence, self.running, self.waiting, self.pages)
            if not isinstance(error, Exception):
                raise
            return self._blame([s.sequence for s in slices], error)
        if len(slices) > 1:
            self._acquitted = False
        deltas = [(s.sequence, self._advance(s, r)) for s, r in zip(slices, rows, strict=True)]
        return [self._tell(sequence, delta) for sequence, delta in deltas]

    def _compute(self, slices: list[Slice]) -> list[Rows]:
        """The outputs that each slice asked for."""
        runner = self.runner
        runner.copy_states()
        if sampled := [s.sequence for s in slices if s.sequence.request.reads is None]:
            runner.samplers.prefetch_masks(sampled)
        self.speculation.save(slices)
        outputs: dict[Sequence, Rows] = {}
        for kind in runner.programs.kinds():
            if same := [s for s in slices if computed(s.sequence.request.reading) == kind]:
                runner.batch.fill([_span(s, self.pages) for s in same])
                start = time.perf_counter()
                rows = runner.programs[kind].launch(runner.batch).result()
                self.costs.learn(runner.batch.n_tokens, time.perf_counter() - start)
                ends = [*accumulate(len(s.outputs) for s in same)]
                outputs |= {s.sequence: rows[end - len(s.outputs) : end] for s, end in zip(same, ends, strict=True)}
        return [outputs[s.sequence] for s in slices]

    def _advance(self, s: Slice, rows: Rows) -> Delta:
        try:
            return self._verify(s, rows) if s.drafts else self._catch_up(s, rows)
        except Exception as error:  # of this sequence alone: others go on
            s.sequence.error = error
            return self._finish(s.sequence, reason="error")

    def _catch_up(self, s: Slice, rows: Rows) -> Delta:
        sequence, caught_up = s.sequence, s.caught_up
        self._reach(s, s.stop)
        if sequence.request.reads is not None:
            sequence.read(s.start + s.outputs.start, rows)
        sequence.logprobs.add_prompt(rows)
        if not caught_up:
            return sequence.delta()
        return self._draw(sequence, rows[-1]) if sequence.request.reads is None else self._finish(sequence)

    def _reach(self, s: Slice, computed: int) -> None:
        lease = s.sequence.lease
        assert lease is not None
        s.sequence.computed = computed
        if computed == s.stop or not self.pages.recurrent:  # recurrent states are those after the last token
            self.pages.keep(lease, s.sequence.known, computed)

    def _verify(self, s: Slice, rows: Rows) -> Delta:
        """Sample after each draft token that is what was sampled before it; the others were computed in vain."""
        sequence = s.sequence
        self._reach(s, s.stop - s.drafts)
        deltas = [self._draw(sequence, rows[0])]
        for row, draft in zip(rows[1:], sequence.drafting.tokens, strict=False):
            if sequence.lease is None or sequence.known[sequence.computed] != draft:
                break
            self._reach(s, sequence.computed + 1)
            if len(sequence.known) == sequence.computed:  # otherwise a grammar has said what comes next
                deltas.append(self._draw(sequence, row))
        tokens = tuple(token for delta in deltas for token in delta.tokens)
        self.speculation.settle(s, tokens)
        return sequence.delta(tokens, "".join(delta.text for delta in deltas))

    def _draw(self, sequence: Sequence, logits: Rows) -> Delta:
        """Sample, and append what was sampled as far as nothing ends the answer before."""
        try:
            tokens = sequence.sample(logits)
        except Exception as error:  # the caller's own function, or nothing left to choose from
            sequence.error = error
            return self._finish(sequence, reason="error")
        text, room, request = "", self.limits.room, sequence.request
        for i, token in enumerate(tokens, 1):
            sequence.known.append(token)
            text += sequence.output.push(token)
            self.metrics.token(sequence)
            full = len(sequence.known) > room and not request.context_shift
            if sequence.output.ended or (i == len(tokens) and sequence.complete):
                return self._finish(sequence, tokens[:i], text)
            if full or len(sequence.generated) == request.max_tokens:
                return self._finish(sequence, tokens[:i], text, "length")
        if len(sequence.known) > room:
            sequence.shift(room, self._keep(sequence))
            requeue(sequence, self.running, self.waiting, self.pages)
        return sequence.delta(tuple(tokens), text)

    def _finish(
        self, sequence: Sequence, tokens: Iterable[int] = (), text: str = "", reason: FinishReason = "stop"
    ) -> Delta:
        if sequence.request.reads is None and reason != "error":
            text += sequence.output.finish()
        self._end(sequence, reason)
        return sequence.delta(tuple(tokens), text)

    def _tell(self, sequence: Sequence, delta: Delta) -> Delta:
        """Pass a delta on. A listener that raises ends its own sequence; others go on."""
        for listener in list(sequence.listeners):
            try:
                listener(delta)
            except Exception as error:
                sequence.listeners.remove(listener)
                self.fail(sequence, error)
        sequence.done = sequence.finish_reason is not None
        return delta

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        sequence.finish_reason = reason
        if sequence.queued:
            self.metrics.finish(sequence)
        if sequence.lease is not None:
            self.pages.release(sequence.lease)
            sequence.lease = None
        for queue in (self.running, self.waiting):
            if sequence in queue:
                queue.remove(sequence)

    # ---- failures ----------------------------------------------------------------------------------------

    def _fail_unfit(self) -> None:
        """A sequence that no cache holds would preempt others, and itself, for ever."""
        for sequence in [s for s in (*self.running, *self.waiting) if not self.pages.holds(len(s.known))]:
            message = (
                f"a sequence of {len(sequence.known)} tokens does not fit the {self.pages.total} KV cache pages: "
                "load the model with more cache_tokens"
            )
            self.fail(sequence, CapacityError(message))

    def _blame(self, sequences: list[Sequence], error: Exception) -> list[Delta]:
        """A step failed. One of several sequences may be to blame: each is computed alone before they go on."""
        if len(sequences) > 1 and not self._acquitted:
            self._suspects.extend(sequences)
            self._acquitted = True
            return []
        self._acquitted = False
        for sequence in sequences:
            self.fail(sequence, error)
        return []

    def _step_alone(self, sequence: Sequence) -> list[Delta]:
        self.waiting.remove(sequence)
        running: list[Sequence] = []
        waiting = [sequence]
        slices = schedule(running, waiting, self.pages, self.budget)
        for queue, members in ((self.running, running), (self.waiting, waiting)):
            for member in members:
                insort(queue, member, key=_rank)
        return self._run(slices)

    # ---- sequences ---------------------------------------------------------------------------------------

    def prepare(self, request: Request, leader: Sequence | None = None) -> Sequence:
        """A sequence that `enqueue` can take, with everything compiled that it needs. For any thread.

        Raises RequestError, CapacityError or another LlaminaError for a request that cannot be computed.
        """
        self.runner.check_open()
        sequence = Sequence(request, leader)
        self.limits.check_tokens(request.prompt, "prompt")
        self.speculation.check(request)
        if request.truncate or request.context_shift:
            self.limits.check_keep(self._keep(sequence))
        if request.truncate:
            sequence.shift(self.limits.room, self._keep(sequence))
        self.limits.check_fit(sequence)
        self.runner.programs.prepare(request.reading)
        self.equip(sequence)
        return sequence

    def equip(self, sequence: Sequence) -> None:
        """Give it its detokenizer and its sampler, grammar compiled."""
        if sequence.request.reads is None:
            sequence.output.begin(self.runner.tokenizer, sequence.request.ignore_eos)
            sequence.sampler = self.runner.samplers.make(sequence)
            self.speculation.prepare(sequence.request)

    def enqueue(self, *sequences: Sequence) -> None:
        """Let prepared sequences wait for their turn.

        Raises QueueFull if not all of them may wait, RequestError if one was cancelled or queued before; then none is.
        """
        self.runner.check_open()
        if len(self.waiting) + len(sequences) > self.max_waiting:
            raise QueueFull(f"{len(self.waiting)} requests wait already, and {self.max_waiting} may: ask again later")
        for sequence in sequences:
            if sequence.finish_reason is not None or sequence.queued:
                raise RequestError("the sequence was cancelled, or is under way already: submit its request again")
        for sequence in sequences:
            self.join(sequence)
            self.place(sequence, None, 0)

    def submit(self, request: Request) -> Sequence:
        """Prepare and enqueue: its deltas come out of `step`."""
        sequence = self.prepare(request)
        self.enqueue(sequence)
        return sequence

    def join(self, sequence: Sequence) -> None:
        """Find its adapters and give it its rank."""
        self.runner.adapters.equip(sequence)
        self.metrics.arrive(sequence)
        sequence.queued = True
        sequence.rank = next(self._arrivals) - HEAD_START * sequence.request.priority

    def place(self, sequence: Sequence, lease: Lease | None, computed: int) -> None:
        """Let it run with what is computed, if there is a place and nobody waits for it; otherwise let it wait."""
        if lease is not None and (self.waiting or len(self.running) >= self.budget.sequences):
            self.pages.release(lease)  # it will find what it left there when its turn comes
            lease = None
        sequence.lease, sequence.computed = lease, computed if lease else 0
        insort(self.running if lease else self.waiting, sequence, key=_rank)

    def cancel(self, sequence: Sequence) -> None:
        """Stop working on a sequence; its pages are free at once."""
        if sequence.finish_reason is None:
            self._end(sequence, "cancelled")
            self._tell(sequence, sequence.delta())

    def fail(self, sequence: Sequence, error: Exception) -> None:
        """End a sequence because of an error, which its caller gets."""
        sequence.error = sequence.error or error
        if sequence.finish_reason is None:
            self._end(sequence, "error")
            self._tell(sequence, sequence.delta())

    def _keep(self, sequence: Sequence) -> int:
        """The first tokens that are never dropped."""
        return max(sequence.request.n_keep, int(sequence.known[0] == self.runner.tokenizer.bos))

    def check_unused(self, adapter: str) -> None:
        """Raise RequestError if a sequence uses an adapter."""
        users = sum(adapter in sequence.request.adapters for sequence in (*self.running, *self.waiting))
        if users:
            raise RequestError(
                f"{users} requests use adapter {adapter!r}: wait until they are done, or cancel them", "name"
            )

    def _gauges(self) -> dict[str, float]:
        pages = self.pages
        used = {"pages": pages.total, "pages_used": pages.total - pages.free, "pages_kept": pages.kept}
        return {"sequences_running": len(self.running), "queue_depth": len(self.waiting), **used}

    def close(self) -> None:
        """End all sequences with an error, and the backend's threads."""
        for sequence in [*self.running, *self.waiting]:
            self.fail(
                sequence, RequestError("the engine was closed before the answer was complete: load the model again")
            )
        self.speculation.close()
        self.runner.close()


def _rank(sequence: Sequence) -> int:
    return sequence.rank


def _span(s: Slice, pages: Pages) -> Span:
    sequence, lease = s.sequence, s.sequence.lease
    assert lease is not None
    tokens = sequence.known[s.start : s.stop] + sequence.drafting.tokens[: s.drafts]
    return Span(tokens, s.start, lease.pages, lease.slot, s.outputs, sequence.applied, pages.window_pages(lease))
