"""The heart: schedule, run, sample, append."""

import os
import time
from bisect import insort
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate, count
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from llamina.backends import Capacity, KvType, Offload, Program, compile_plan
from llamina.cache import Lease, Near, Pages
from llamina.engine.adapters import Adapters
from llamina.engine.limits import Limits
from llamina.engine.memory import find_room
from llamina.engine.metrics import Metrics
from llamina.engine.programs import Programs, computed
from llamina.engine.request import Event, FinishReason, Request
from llamina.engine.samplers import Samplers
from llamina.engine.schedule import Budget, Slice, requeue, schedule
from llamina.engine.speculation import Costs
from llamina.engine.speculation.speculation import Speculation
from llamina.errors import RequestError, UnsupportedModel
from llamina.gguf import GGUF, fingerprint
from llamina.models import Decoder
from llamina.ops.batch import PAGE, Batch, Span
from llamina.plan import Plan, record
from llamina.tokenizer import Tokenizer

STEP_TOKENS = 512  # of one step, unless told otherwise
LOGITS_BYTES = 256 << 20  # address space for one step's logits; only what is used becomes resident
HEAD_START = 64  # how many earlier requests of priority 0 one of priority 1 overtakes; so nobody waits for ever


class Core:
    """A loaded model and the requests it is working on. Not for several threads at once."""

    def __init__(
        self,
        file: GGUF,
        model: Decoder,
        *,
        backend: str = "cpu",
        threads: int = 1,
        kv_type: KvType = "f16",
        max_tokens: int | None = None,
        max_sequences: int = 16,
        cache_tokens: int | None = None,
        offload: Literal["none", "budget", "pinned"] = "none",
        memory_budget: int | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        _check_options(kv_type, max_tokens=max_tokens, max_sequences=max_sequences, cache_tokens=cache_tokens)
        self.file = file
        self.model = model
        self.backend, self.kv_type = backend, kv_type
        self.context = model.config.context
        self.plan: Plan = record(model.forward)
        if self.plan.causal != model.causal:
            key = f"{model.config.architecture}.attention.causal"
            raise UnsupportedModel(f"{key} is {model.causal}: that variant of the architecture is not known here")
        self.adapters = Adapters(file.metadata, self.plan)
        self.weight_bytes = sum(tensor.nbytes for tensor in file.tensors.values())
        paged = _offload(offload, memory_budget)
        weights = min(self.weight_bytes, paged.budget) if paged else self.weight_bytes
        whole = not model.causal
        max_tokens = max_tokens or (max(self.context, STEP_TOKENS) if whole else STEP_TOKENS)
        room = find_room(self.plan, weights, self.context, max_sequences, max_tokens, kv_type, cache_tokens)
        near = Near(room.near, room.reach)
        self.pages = Pages(room.pages, max_sequences, room.checkpoints, near, sharing=model.causal)
        slots = max_sequences + (room.checkpoints or 0)
        self.capacity = Capacity(room.pages, slots, kv_type, threads, paged, room.near)
        outputs = max(1, min(max_tokens, LOGITS_BYTES // (4 * self.plan.vocab)))
        self.budget = Budget(max_tokens, outputs, min(max_sequences, outputs), whole)  # a token for each in every step
        self.batch = Batch(max_tokens, outputs, max_sequences, -(-self.context // PAGE))
        vocab = model.embeddings.shape[0]
        self.limits = Limits(self.context, PAGE * self.pages.total, vocab, outputs if whole else None)
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.speculation = Speculation(self)
        self.costs = Costs()
        self.metrics = Metrics(self._gauges)
        self._arrivals = count()
        self._closed = False
        self._progress = progress
        self.programs = Programs(model, self.plan, self.adapters, self._compile)

    def _compile(self, plan: Plan, before: Program | None) -> Program:
        return compile_plan(self.backend, plan, self.batch, self.capacity, self._progress, before)

    @property
    def program(self) -> Program:
        """The forward pass, compiled."""
        return self.programs.main

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Built on first use: a file without a vocabulary still has logits."""
        return Tokenizer.from_metadata(self.file.metadata)

    @cached_property
    def samplers(self) -> Samplers:
        return Samplers(self.tokenizer, self.plan.vocab)

    @cached_property
    def fingerprint(self) -> str:
        """Which model it is, by the contents of its file."""
        return fingerprint(self.file)

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
                rows = self.programs[kind].run(self.batch)
                self.costs.learn(self.batch.n_tokens, time.perf_counter() - start)
                ends = [*accumulate(len(s.outputs) for s in same)]
                found.update({s.request: rows[end - len(s.outputs) : end] for s, end in zip(same, ends, strict=True)})
        return [found[s.request] for s in slices]

    def copy_states(self) -> None:
        """What the pool has promised to copy; states are as they should be afterwards."""
        for unit, source, target in self.pages.take_copies():
            self.program.states.copy(unit, source, target)

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
        text = ""
        for i, token in enumerate(tokens, 1):
            request.known.append(token)
            text += request.output.push(token)
            self.metrics.token(request)
            full = len(request.known) > self.limits.room and not request.context_shift
            if request.output.ended or (i == len(tokens) and request.complete):
                return self._finish(request, tokens[:i], text)
            if full or len(request.generated) == request.max_tokens:
                return self._finish(request, tokens[:i], text, "length")
        if len(request.known) > self.limits.room:
            request.shift(self.limits.room, self._keep(request))
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

    # ---- adapters ----------------------------------------------------------------------------------------

    def load_adapter(self, path: str | os.PathLike[str], name: str | None = None) -> str:
        """Load a LoRA for requests to use by its name, which is that of the file unless given.

        One that adapts matrices which none has adapted before has the plan compiled again; requests go on with it.
        """
        self.check_open()
        name, adapter = self.adapters.read(path, name)
        if not adapter.pairs.keys() <= self.adapters.matrices:
            self.plan = self.programs.make_places(self.adapters.matrices | adapter.pairs.keys())
        self.programs.adapt(self.adapters.add(name, adapter), adapter.pairs)
        return name

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

    # ---- life --------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self._closed:
            raise RequestError("the engine is closed: load the model again")

    def close(self) -> None:
        """End the backend's threads and forget all requests."""
        for request in [*self.running, *self.waiting]:
            self.cancel(request)
        if "samplers" in self.__dict__:
            self.samplers.close()
        self.speculation.close()
        self.programs.close()
        self._closed = True


def _span(s: Slice, pages: Pages) -> Span:
    lease = s.request.lease
    assert lease is not None
    tokens = s.request.known[s.start : s.stop] + s.request.drafting.tokens[: s.drafts]
    near = pages.seen(lease)
    return Span(tokens, s.start, lease.pages, lease.slot, s.outputs, s.request.applied, near)


def _offload(policy: str, budget: int | None) -> Offload | None:
    """How much of the weights may be resident; all of them unless a policy says otherwise."""
    if policy not in ("none", "budget", "pinned"):
        raise RequestError(f"offload is {policy!r}: none, budget or pinned is expected", "offload")
    if (policy == "none") != (budget is None):
        raise RequestError(
            f"offload is {policy!r} and memory_budget is {budget}: give both or neither", "memory_budget"
        )
    return Offload("pinned" if policy == "pinned" else "budget", budget) if budget is not None else None


def _check_options(kv_type: str, **counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise RequestError(f"{name} is {value}: at least 1 is expected", name)
    if kv_type not in get_args(KvType):
        raise RequestError(f"kv_type is {kv_type!r}: {' or '.join(get_args(KvType))} is expected", "kv_type")
