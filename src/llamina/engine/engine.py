"""The heart: schedule, run, sample, append."""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import count
from types import TracebackType
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from llamina.backends import Capacity, KvType, Program, compile_plan
from llamina.cache import Pages
from llamina.engine.generation import Generation
from llamina.engine.request import Event, Request, request_of
from llamina.engine.result import Completion
from llamina.engine.schedule import Budget, Slice, schedule
from llamina.errors import CapacityError, ContextTooLong, RequestError
from llamina.gguf import GGUF
from llamina.models import Decoder
from llamina.ops.batch import PAGE, Batch, Span
from llamina.plan import Plan, record
from llamina.sampling import BreakerTable, Sampler
from llamina.tokenizer import Tokenizer

LOGITS_BYTES = 256 << 20  # address space for one step's logits; only what is used becomes resident
HEAD_START = 64  # how many earlier requests of priority 0 one of priority 1 overtakes; so nobody waits for ever


class Engine:
    """A loaded model and the requests it is working on. Not for several threads at once."""

    def __init__(
        self,
        file: GGUF,
        model: Decoder,
        *,
        backend: str = "cpu",
        threads: int = 1,
        kv_type: KvType = "f16",
        max_tokens: int = 512,
        max_sequences: int = 16,
        cache_tokens: int | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        _check_options(kv_type, max_tokens=max_tokens, max_sequences=max_sequences, cache_tokens=cache_tokens)
        self.file = file
        self.model = model
        self.context = model.config.context
        self.plan: Plan = record(model.forward)
        self._capacity = Capacity(self._pages(cache_tokens), max_sequences, kv_type, threads)
        outputs = self._outputs(max_tokens)
        self.budget = Budget(max_tokens, outputs, min(max_sequences, outputs))  # each may make a token in every step
        self.batch = Batch(max_tokens, self.budget.outputs, max_sequences, -(-self.context // PAGE))
        self.pages = Pages(self._capacity.pages, self._capacity.slots)
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self._arrivals = count()
        self._closed = False
        self.program: Program = compile_plan(backend, self.plan, self.batch, self._capacity, progress)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Built on first use: a file without a vocabulary still has logits."""
        return Tokenizer.from_metadata(self.file.metadata)

    def _pages(self, cache_tokens: int | None) -> int:
        return -(-(cache_tokens or 2 * self.context) // PAGE)

    def _outputs(self, max_tokens: int) -> int:
        return max(1, min(max_tokens, LOGITS_BYTES // (4 * self.plan.vocab)))

    # ---- the step ----------------------------------------------------------------------------------------

    def step(self) -> list[Event]:
        """Advance every request that has a place in the next batch."""
        self._check_open()
        slices = schedule(self.running, self.waiting, self.pages, self.budget)
        logits = self.program.run(self.batch.fill([_span(s) for s in slices])) if slices else None
        events, row = [], 0
        for s in slices:
            assert logits is not None
            rows, row = logits[row : row + len(s.outputs)], row + len(s.outputs)
            events.append(self._advance(s, rows))
        return events

    def _advance(self, s: Slice, rows: npt.NDArray[np.float32]) -> Event:
        request = s.request
        request.computed = s.stop
        if request.all_logits:
            request.rows.append(rows.copy())
            return self._finish(request, None, "") if s.caught_up else Event(request)
        return self._draw(request, rows[0]) if s.caught_up else Event(request)

    def _draw(self, request: Request, logits: npt.NDArray[np.float32]) -> Event:
        try:
            token = request.sample(logits)
        except Exception as error:  # the caller's own function, or nothing left to choose: others go on
            request.error = error
            return self._finish(request, None, "", "error")
        return self._append(request, token)

    def _append(self, request: Request, token: int) -> Event:
        request.known.append(token)
        if token in self.tokenizer.eog and not request.ignore_eos:
            return self._finish(request, token, "")
        assert request.detokenizer is not None
        text = request.stops.push(request.detokenizer.push(token))
        if request.stops.hit:
            return self._finish(request, token, text)
        full = len(request.known) >= self.context or not self.pages.holds(len(request.known))
        if full or len(request.generated) == request.max_tokens:
            return self._finish(request, token, text, "length")
        return self._event(request, token, text)

    def _finish(self, request: Request, token: int | None, text: str, reason: Any = "stop") -> Event:
        if request.detokenizer is not None and not request.stops.hit:
            text += request.stops.push(request.detokenizer.flush())
            text += request.stops.flush()
        request.finish_reason = reason
        self._forget(request)
        return self._event(request, token, text)

    def _event(self, request: Request, token: int | None, text: str) -> Event:
        if text:
            request.pieces.append(text)
        return Event(request, token, text, request.finish_reason)

    def _forget(self, request: Request) -> None:
        if request.lease is not None:
            self.pages.release(request.lease)
            request.lease = None
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)

    # ---- requests ----------------------------------------------------------------------------------------

    def submit(self, request: Request) -> Request:
        """Queue a request; its events come out of `step`."""
        self._check_open()
        limit = self.context if request.all_logits else self.context - 1
        if len(request.known) > limit:
            raise ContextTooLong(
                f"the prompt has {len(request.known)} tokens and the context holds {self.context}: "
                "shorten it, or load the model with a larger context",
                "prompt",
            )
        if not self.pages.holds(len(request.known)):
            raise CapacityError(
                f"the prompt has {len(request.known)} tokens and the cache holds {self.pages.total * PAGE}: "
                "shorten it, or load the model with more cache_tokens"
            )
        vocab = self.plan.vocab
        if any(not 0 <= t < vocab for t in request.known):
            raise RequestError(f"the prompt has a token outside the vocabulary of {vocab}", "prompt")
        if not request.all_logits:
            request.detokenizer = self.tokenizer.stream(continued=True)
            request.sampler = self._sampler(request)
        request.rank = next(self._arrivals) - HEAD_START * request.priority
        insort(self.waiting, request, key=lambda r: r.rank)
        return request

    def _sampler(self, request: Request) -> Sampler:
        params = request.sampling
        return Sampler(
            params,
            self.plan.vocab,
            suppressed=self.tokenizer.suppressed,
            breakers=self._breakers(params.dry_sequence_breakers) if params.dry_multiplier else None,
            processor=request.logits_processor,
        )

    @cached_property
    def _breakers(self) -> BreakerTable:
        return BreakerTable(self.tokenizer)

    def cancel(self, request: Request) -> None:
        """Stop working on a request; its pages are free at once."""
        if request.finish_reason is None:
            request.finish_reason = "cancelled"
        self._forget(request)

    def encode(self, prompt: str | Sequence[int], add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Text as prompt tokens (token ids pass through)."""
        if not isinstance(prompt, str):
            return [int(t) for t in prompt]
        return self.tokenizer.encode(prompt, add_special=add_special, parse_special=parse_special)

    def stream(self, prompt: str | Sequence[int], *, max_tokens: int | None = 256, **options: Any) -> Generation:
        """An iterator of text pieces; `.result()` is the whole. Dropping it early cancels the request.

        Options are the fields of `Request` and of `Sampling`.
        """
        request = request_of(self.encode(prompt), max_tokens=max_tokens, **options)
        return Generation(self, self.submit(request))

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Completion:
        """Continue a prompt to its end; options are those of `stream`."""
        return self.stream(prompt, **options).result()

    def render_chat(self, messages: Sequence[dict[str, Any]], **kwargs: Any) -> str:
        """The model's own chat template applied to messages, ready for its answer."""
        return self.tokenizer.render_chat(messages, **kwargs)

    def stream_chat(self, messages: Sequence[dict[str, Any]], **options: Any) -> Generation:
        """`stream` over a conversation."""
        tokens = self.encode(self.render_chat(messages), add_special=False)
        return self.stream(self._with_bos(tokens), **options)

    def chat(self, messages: Sequence[dict[str, Any]], **options: Any) -> Completion:
        """`generate` over a conversation."""
        return self.stream_chat(messages, **options).result()

    def _with_bos(self, tokens: list[int]) -> list[int]:
        """Templates write their own BOS; where one does not and the model wants it, it is put in front."""
        bos = self.tokenizer.bos
        wanted = self.tokenizer.add_bos and bos is not None and tokens[:1] != [bos]
        return [bos, *tokens] if wanted and bos is not None else tokens

    def logits(self, tokens: Iterable[int]) -> npt.NDArray[np.float32]:
        """Logits after every token, [tokens, vocab]."""
        request = self.submit(Request(list(tokens), all_logits=True))
        while request.finish_reason is None:
            self.step()
        return np.concatenate(request.rows)

    # ---- life --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the backend's threads and forget all requests."""
        for request in [*self.running, *self.waiting]:
            self.cancel(request)
        self.program.close()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise RequestError("the engine is closed: load the model again")

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _span(s: Slice) -> Span:
    lease = s.request.lease
    assert lease is not None
    return Span(s.request.known[s.start : s.stop], s.start, lease.pages, lease.slot, s.outputs)


def _check_options(kv_type: str, **counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise RequestError(f"{name} is {value}: at least 1 is expected", name)
    if kv_type not in get_args(KvType):
        raise RequestError(f"kv_type is {kv_type!r}: {' or '.join(get_args(KvType))} is expected", "kv_type")
