"""The heart: schedule, run, sample, append."""

import time
from bisect import insort
from collections.abc import Sequence
from itertools import accumulate, count
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.cache import Lease, Pages
from llamina.engine.machine import Machine
from llamina.engine.metrics import Metrics
from llamina.engine.programs import computed
from llamina.engine.request import Event, FinishReason, Request
from llamina.engine.schedule import Slice, requeue, schedule
from llamina.engine.speculation import Costs
from llamina.engine.speculation.speculation import Speculation
from llamina.errors import RequestError
from llamina.gguf import GGUF
from llamina.models import Decoder
from llamina.ops.batch import Span

HEAD_START = 64  # how many earlier requests of priority 0 one of priority 1 overtakes; so nobody waits for ever


class Core(Machine):
    """A loaded model and the requests it is working on. Not for several threads at once."""

    def __init__(self, file: GGUF, model: Decoder, **options: Any) -> None:
        """Options are those of `Machine`."""
        super().__init__(file, model, **options)
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.speculation = Speculation(self)
        self.costs = Costs()
        self.metrics = Metrics(self._gauges)
        self._arrivals = count()

    # ---- the step ----------------------------------------------------------------------------------------

    def step(self) -> list[Event]:
        """Advance every request that has a place in the next batch."""
        self.check_open()
        self.speculation.draft()
        before = list(self.running)
        slices = schedule(self.running, self.waiting, self.pages, self.budget)
        self.metrics.step(slices, preempted=sum(r.lease is None for r in before))
        events: list[Event] = []
        try:
            for s, rows in zip(slices, self._compute(slices), strict=True):
                events.append(self._advance(s, rows))
        except BaseException:
            for s in slices[len(events) :]:  # nobody knows how far these came: they are computed again
                if s.request.lease is not None:
                    requeue(s.request, self.running, self.waiting, self.pages)
            raise
        for event in events:
            self._tell(event)
        return events

    def _compute(self, slices: list[Slice]) -> list[npt.NDArray[np.float32]]:
        """The outputs that each slice asked for."""
        self.copy_states()
        if sampled := [s.request for s in slices if s.request.reads is None]:
            self.samplers.prepare(sampled)
        self.speculation.save(slices)
        found: dict[Request, npt.NDArray[np.float32]] = {}
        for kind in self.programs.kinds():
            if same := [s for s in slices if computed(s.request.reading) == kind]:
                self.batch.fill([_span(s, self.pages) for s in same])
                start = time.perf_counter()
                rows = self.programs[kind].launch(self.batch).result()
                self.costs.learn(self.batch.n_tokens, time.perf_counter() - start)
                ends = [*accumulate(len(s.outputs) for s in same)]
                found.update({s.request: rows[end - len(s.outputs) : end] for s, end in zip(same, ends, strict=True)})
        return [found[s.request] for s in slices]

    def _advance(self, s: Slice, rows: npt.NDArray[np.float32]) -> Event:
        if s.drafts:
            return self._verify(s, rows)
        request, caught_up = s.request, s.caught_up
        self._reach(s, s.stop)
        if request.reads is not None:
            request.read(s.start + s.outputs.start, rows)
        request.scores.add_prompt(rows)
        if not caught_up:
            return Event(request)
        return self._draw(request, rows[-1]) if request.reads is None else self._finish(request)

    def _reach(self, s: Slice, computed: int) -> None:
        lease = s.request.lease
        assert lease is not None
        s.request.computed = computed
        if computed == s.stop or not self.pages.recurrent:  # recurrent states are those after the last token
            self.pages.keep(lease, s.request.known, computed)

    def _verify(self, s: Slice, rows: npt.NDArray[np.float32]) -> Event:
        """Draw after each guess that is what was drawn before it; the others were computed in vain."""
        request = s.request
        self._reach(s, s.stop - s.drafts)
        events = [self._draw(request, rows[0])]
        for row, guess in zip(rows[1:], request.drafting.tokens, strict=False):
            if request.lease is None or request.known[request.computed] != guess:
                break
            self._reach(s, request.computed + 1)
            if len(request.known) == request.computed:  # otherwise a grammar has said what comes next
                events.append(self._draw(request, row))
        tokens = tuple(token for event in events for token in event.tokens)
        self.speculation.settle(s, tokens)
        return Event(request, tokens, "".join(event.text for event in events), events[-1].finish_reason)

    def _draw(self, request: Request, logits: npt.NDArray[np.float32]) -> Event:
        try:
            tokens = request.sample(logits)
        except Exception as error:  # the caller's own function, or nothing left to choose: others go on
            request.error = error
            return self._finish(request, reason="error")
        return self._append(request, tokens)

    def _append(self, request: Request, tokens: Sequence[int]) -> Event:
        """Say these tokens, as far as nothing ends the answer before."""
        text, room = "", self.limits.room
        for i, token in enumerate(tokens, 1):
            request.known.append(token)
            text += request.output.push(token)
            self.metrics.token(request)
            full = len(request.known) > room and not request.context_shift
            if request.output.ended or (i == len(tokens) and request.complete):
                return self._finish(request, tokens[:i], text)
            if full or len(request.generated) == request.max_tokens:
                return self._finish(request, tokens[:i], text, "length")
        if len(request.known) > room:
            request.shift(room, self._keep(request))
            requeue(request, self.running, self.waiting, self.pages)
        return Event(request, tuple(tokens), text)

    def _finish(
        self, request: Request, tokens: Sequence[int] = (), text: str = "", reason: FinishReason = "stop"
    ) -> Event:
        if request.reads is None:
            text += request.output.finish()
        self._end(request, reason)
        return Event(request, tuple(tokens), text, reason)

    def _tell(self, event: Event) -> None:
        request = event.request
        try:
            if request.on_event is not None:
                request.on_event(event)
        except Exception as error:  # the caller's own function: others go on
            self.fail(request, error)

    def _end(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason
        self.metrics.finish(request)
        if request.lease is not None:
            self.pages.release(request.lease)
            request.lease, request.computed = None, 0
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)

    # ---- requests ----------------------------------------------------------------------------------------

    def submit(self, request: Request) -> Request:
        """Queue a request; its events come out of `step`."""
        self.check_open()
        self.limits.check_tokens(request.known, "prompt")
        self.speculation.check(request)
        if request.truncate or request.context_shift:
            self.limits.check_keep(self._keep(request))
        if request.truncate:
            request.shift(self.limits.room, self._keep(request))
        self.limits.check_fit(request)
        self.programs.prepare(request.reading)
        self.begin(request)
        self.place(request, None, 0)
        return request

    def begin(self, request: Request) -> None:
        """Give it its adapters, what it speaks with, and its rank."""
        self.adapters.equip(request)
        if request.reads is None:
            request.output.begin(self.tokenizer, request.ignore_eos)
            request.sampler = self.samplers.make(request)
        self.metrics.arrive(request)
        request.rank = next(self._arrivals) - HEAD_START * request.priority

    def place(self, request: Request, lease: Lease | None, computed: int) -> None:
        """Let it run with what is computed, if there is a place and nobody waits for it; otherwise let it wait."""
        if lease is not None and (self.waiting or len(self.running) >= self.budget.sequences):
            self.pages.release(lease)  # it will find what it left there when its turn comes
            lease = None
        request.lease, request.computed = lease, computed if lease else 0
        insort(self.running if lease else self.waiting, request, key=lambda r: r.rank)

    def cancel(self, request: Request) -> None:
        """Stop working on a request; its pages are free at once."""
        if request.finish_reason is None:
            self._end(request, "cancelled")
            self._tell(Event(request, finish_reason="cancelled"))

    def fail(self, request: Request, error: Exception) -> None:
        """End a request because of an error, which its caller gets."""
        request.error = request.error or error
        if request.finish_reason is None:
            self._end(request, "error")
            self._tell(Event(request, finish_reason="error"))

    def _keep(self, request: Request) -> int:
        """The first tokens that are never dropped."""
        return max(request.n_keep, int(request.known[0] == self.tokenizer.bos))

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter that no request uses."""
        self.check_open()
        users = sum(name in request.adapters for request in (*self.running, *self.waiting))
        if users:
            raise RequestError(
                f"{users} requests use adapter {name!r}: wait until they are done, or cancel them", "name"
            )
        self.programs.adapt(self.adapters.remove(name), {})

    def _gauges(self) -> dict[str, float]:
        pages = self.pages
        used = {"pages": pages.total, "pages_used": pages.total - pages.free, "pages_kept": pages.kept}
        return {"requests_running": len(self.running), "requests_waiting": len(self.waiting), **used}

    def close(self) -> None:
        """End the backend's threads and forget all requests."""
        for request in [*self.running, *self.waiting]:
            self.cancel(request)
        self.speculation.close()
        super().close()


def _span(s: Slice, pages: Pages) -> Span:
    lease = s.request.lease
    assert lease is not None
    tokens = s.request.known[s.start : s.stop] + s.request.drafting.tokens[: s.drafts]
    window = pages.window_pages(lease)
    return Span(tokens, s.start, lease.pages, lease.slot, s.outputs, s.request.applied, window)
