"""The heart: schedule, run, sample, append.

On a device that samples by itself, a step is launched before the results of the one ahead of it are looked at, with
tokens that only the device knows. A sequence that turns out to have ended has a place in that step for nothing.
"""

import time
from bisect import insort
from collections import deque
from collections.abc import Iterable
from itertools import count

from llamina.cache import Lease
from llamina.engine.delta import Delta, FinishReason
from llamina.engine.flight import Flight, Rows, kind_of, span_of
from llamina.engine.metrics import Metrics
from llamina.engine.parking import Parking
from llamina.engine.request import Request
from llamina.engine.runner.model_runner import ModelRunner
from llamina.engine.runner.programs import Kind
from llamina.engine.schedule import Slice, requeue, schedule
from llamina.engine.sequence import Sequence
from llamina.engine.speculation.draft_length import Costs
from llamina.engine.speculation.speculation import Speculation
from llamina.errors import CapacityError, QueueFull, RequestError
from llamina.ops.batch import Span

HEAD_START = 64  # how many earlier requests of priority 0 one of priority 1 overtakes; so nobody waits for ever
MAX_WAITING = 4096


class Core:
    """The sequences of one model and the steps that advance them. Not for several threads at once: see `Stepper`."""

    def __init__(self, runner: ModelRunner, max_waiting: int = MAX_WAITING) -> None:
        self.runner = runner
        self.pages, self.limits, self.budget = runner.pages, runner.limits, runner.budget
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.parking = Parking(self.pages)
        self.speculation = Speculation(self)
        self.costs = Costs()
        self.metrics = Metrics(self._gauges)
        self.max_waiting = max_waiting
        self._arrivals = count()
        self._flight: Flight | None = None  # a step that was launched and not looked at
        self._landed = 0.0  # when the last step was done
        self._news: deque[tuple[Sequence, Delta]] = deque()  # to be told
        self._told: list[Delta] = []  # since the last step
        self._telling = False
        self._suspects: deque[Sequence] = deque()  # of a failed step: each is computed alone once
        self._acquitted = False  # all suspects were, and none of them failed

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    # ---- the step ----------------------------------------------------------------------------------------

    def step(self) -> list[Delta]:
        """Advance every sequence that has a place in the next batch; their deltas, which listeners were told."""
        self.runner.check_open()
        self._flight = flight = self._flight or self._launch()
        if flight is not None:
            self._flight = self._launch(flight) if self._goes_ahead(flight) else None
            self._land(flight)
        self._tell_news()
        told, self._told = self._told, []
        return told

    def settle(self) -> None:
        """Wait for the step that is under way, if there is one: then all tokens of all sequences are known."""
        flight, self._flight = self._flight, None
        if flight is not None:
            self._land(flight)
            self._tell_news()

    def withdraw(self) -> None:
        """Discard the step in flight, if there is one: it is computed again, and nobody knows more than was told."""
        flight, self._flight = self._flight, None
        for s in flight.leased() if flight is not None else ():
            s.sequence.computed, s.sequence.ahead = s.start, 0

    def _launch(self, before: Flight | None = None) -> Flight | None:
        """Begin the next step, behind one that is under way; None if there is nothing to do, or it failed at once."""
        slices = self._schedule()
        if not slices:
            return None
        try:
            return self._begin(slices, before)
        except BaseException as error:
            self._abandon(slices, error)
            return None

    def _schedule(self) -> list[Slice]:
        self._fail_unfit()
        while self._suspects:
            if (suspect := self._suspects.popleft()) in self.waiting:
                return self._schedule_alone(suspect)
        self.speculation.draft()
        running = list(self.running)
        slices = schedule(self.running, self.waiting, self.pages, self.budget, self.parking.reclaim)
        self.metrics.step(slices, preempted=sum(s.lease is None for s in running))
        return slices

    def _begin(self, slices: list[Slice], before: Flight | None) -> Flight:
        runner, flight = self.runner, Flight(slices)
        runner.copy_states()
        if sampled := [s.sequence for s in slices if s.sequence.request.reads is None]:
            runner.samplers.prefetch_masks(sampled)
        self.speculation.save(slices)
        kinds: dict[Kind, list[tuple[Slice, Span]]] = {}
        for s in slices:
            span = before.span(s, self.pages) if before else span_of(s, self.pages)
            kinds.setdefault(kind_of(s, span), []).append((s, span))
        for kind, same in kinds.items():
            batch = runner.batch.fill([span for _, span in same])
            flight.launch(runner.programs[kind], batch, [s for s, _ in same])
        for s in slices:
            s.sequence.computed = s.stop - s.drafts
            s.sequence.ahead += flight.chooses(s.sequence) and self._goes_on(s.sequence)
        return flight

    def _goes_on(self, sequence: Sequence) -> bool:
        """Whether the host need not know the token that is being sampled, neither to go on after it nor to end."""
        assert sequence.sampler is not None
        request, made = sequence.request, len(sequence.generated) + sequence.ahead + 1
        ends = made == request.max_tokens or sequence.length + 1 > self.limits.room
        return sequence.sampler.handover.blind and not ends

    def _goes_ahead(self, flight: Flight) -> bool:
        """Whether the next step need not wait for this one: nobody in it would have to miss that step."""
        if not self.runner.program.ahead or flight.read or self.pages.recurrent or self._suspects:
            return False  # recurrent states are kept as they are after a step
        for sequence in (s.sequence for s in flight.slices if flight.chooses(s.sequence)):
            assert sequence.sampler is not None
            if not sequence.sampler.handover.blind or (sequence.ahead and self.speculation.waits(sequence)):
                return False
        return True

    def _land(self, flight: Flight) -> None:
        """Take in the results of a step."""
        try:
            brought = flight.land()
            now = time.perf_counter()
            if flight.waits:
                self.costs.learn(flight.tokens, now - max(flight.begun, self._landed))
            self._landed = now
            if len(flight.slices) > 1:
                self._acquitted = False
            self._news.extend((s.sequence, self._advance(s, found)) for s, found in brought)
        except BaseException as error:
            behind, self._flight = self._flight, None
            self._abandon([*flight.slices, *(behind.slices if behind else ())], error)

    def _abandon(self, slices: list[Slice], error: BaseException) -> None:
        """A step failed; nobody knows how far its sequences came: they are computed again."""
        sequences = list(dict.fromkeys(s.sequence for s in slices))
        for sequence in sequences:
            if sequence.lease is not None:
                requeue(sequence, self.running, self.waiting, self.pages)
        if not isinstance(error, Exception):
            raise error
        self._blame(sequences, error)

    def _advance(self, s: Slice, found: Rows | int) -> Delta:
        try:
            if isinstance(found, int):
                self._reach(s, s.stop)
                return self._draw(s.sequence, found)
            return self._verify(s, found) if s.drafts else self._catch_up(s, found)
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
            return sequence.delta(computed=s.stop)  # without what the step behind this one computes
        return self._draw(sequence, rows[-1]) if sequence.request.reads is None else self._finish(sequence)

    def _reach(self, s: Slice, computed: int) -> None:
        lease = s.sequence.lease
        assert lease is not None
        s.sequence.computed = max(s.sequence.computed, computed)
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

    def _draw(self, sequence: Sequence, found: Rows | int) -> Delta:
        """Sample, unless the device has, and append what was sampled as far as nothing ends the answer before."""
        try:
            tokens = sequence.accept(found) if isinstance(found, int) else sequence.sample(found)
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

    def _tell_news(self) -> None:
        """Tell what steps brought, in order; what comes while listeners are told is told after it."""
        if not self._telling:
            self._telling = True
            try:
                while self._news:
                    self._told.append(self._tell(*self._news.popleft()))
            finally:
                self._telling = False

    def _tell(self, sequence: Sequence, delta: Delta) -> Delta:
        """Pass a delta on. A listener that raises ends its own sequence; others go on."""
        for listener in list(sequence.listeners):
            try:
                listener(delta)
            except Exception as error:
                sequence.listeners.remove(listener)
                self.fail(sequence, error)
        sequence.told(delta)
        return delta

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        sequence.finish_reason, sequence.ahead = reason, 0
        if sequence.generated:  # nobody keeps what a step behind this one computes of the last token
            sequence.computed = min(sequence.computed, len(sequence.known) - 1)
        if sequence.queued:
            self.metrics.finish(sequence)
        self.parking.end(sequence, rests=reason == "stop")
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

    def _blame(self, sequences: list[Sequence], error: Exception) -> None:
        """A step failed. One of several sequences may be to blame: each is computed alone before they go on."""
        if len(sequences) > 1 and not self._acquitted:
            self._suspects.extend(sequences)
            self._acquitted = True
            return
        self._acquitted = False
        for sequence in sequences:
            self.fail(sequence, error)

    def _schedule_alone(self, sequence: Sequence) -> list[Slice]:
        self.waiting.remove(sequence)
        running: list[Sequence] = []
        waiting = [sequence]
        slices = schedule(running, waiting, self.pages, self.budget, self.parking.reclaim)
        for queue, members in ((self.running, running), (self.waiting, waiting)):
            for member in members:
                insort(queue, member, key=_rank)
        return slices

    # ---- sequences ---------------------------------------------------------------------------------------

    def prepare(self, request: Request, leader: Sequence | None = None) -> Sequence:
        """A sequence that `enqueue` can take, with everything compiled that it needs. For any thread.

        Raises RequestError, CapacityError or another LlaminaError for a request that cannot be computed.
        """
        self.runner.check_open()
        sequence = Sequence(request, leader)
        self.limits.check_request(request)
        self.runner.check_embedded(request.embedded)
        self.speculation.check(request)
        if request.truncate or request.context_shift:
            self.limits.check_keep(self._keep(sequence))
        if request.truncate:
            sequence.shift(self.limits.room, self._keep(sequence))
        self.limits.check_fit(sequence)
        self.runner.programs.prepare(request.reading, bool(request.embedded))
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
        self._flight = None
        self.speculation.close()
        self.runner.close()


def _rank(sequence: Sequence) -> int:
    return sequence.rank
