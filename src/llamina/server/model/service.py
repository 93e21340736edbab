"""An engine that answers frames: in the model's own process, or in this one for tests and notebooks."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from llamina.chat import CallArguments, CallBegin, CallDropped, ChatEvent, Content, Reasoning
from llamina.engine import Delta, Engine, Sequence
from llamina.engine.cancellation import SCOPE, Scope
from llamina.engine.engine import MAX_TOKENS
from llamina.engine.request import request_of
from llamina.engine.tasks.chat import AnswerParser, prepare
from llamina.engine.tasks.completion import usage_of
from llamina.sampling import TokenLogprob
from llamina.server.model.frames import (
    Call,
    CallDelta,
    Cancel,
    Chunk,
    Chunks,
    ErrorInfo,
    Failed,
    FromModel,
    Generate,
    Logprob,
    Result,
    ToModel,
    Usage,
)
from llamina.server.model.infill import infill
from llamina.server.model.slots import slots_of
from llamina.server.model.verbs import VERBS, joined

THREADS = 16  # requests that are prepared, or verbs that wait, at the same time
NO_CALLS: list[CallDelta] = []
Emit = Callable[[FromModel], None]


class Answer:
    """One of the answers to a `Generate`, on its way from deltas to chunks."""

    def __init__(self, frame: Generate, index: int, parser: AnswerParser | None) -> None:
        self.id, self.index = frame.id, index
        self.parser = parser
        self.tell_prompt = frame.tell_prompt
        self.slot = 0
        self.sequence: Sequence | None = None


class Service:
    """Takes frames from any thread; emits frames from any thread, those of one step together."""

    def __init__(self, engine: Engine, emit: Emit) -> None:
        self._engine, self._emit = engine, emit
        self._pool = ThreadPoolExecutor(THREADS, "llamina-service")
        self._scopes: dict[int, Scope] = {}
        self._left: dict[int, int] = {}  # answers that are not done
        self._step: list[tuple[Answer, Delta]] = []
        engine.stepper.after_step.append(self._deliver)
        engine.stepper.serve()

    def handle(self, frame: ToModel) -> None:
        """Take a frame; what comes of it is emitted later."""
        if isinstance(frame, Cancel):
            if (scope := self._scopes.get(frame.id)) is not None:
                scope.cancel()
            return
        self._scopes[frame.id] = scope = Scope(frame.salt if isinstance(frame, Call) else "")
        self._pool.submit(self._begin, frame, scope)

    def close(self) -> None:
        """End the engine and the threads; what is under way ends with an error."""
        self._engine.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # ---- in the pool -------------------------------------------------------------------------------------

    def _begin(self, frame: Generate | Call, scope: Scope) -> None:
        SCOPE.set(scope)
        try:
            if isinstance(frame, Generate):
                self._generate(frame)
            else:
                value = VERBS[frame.verb](self._engine, **frame.params)
                self._emit(Result(frame.id, value))
                self._scopes.pop(frame.id, None)
        except BaseException as error:
            self._emit(Failed(frame.id, ErrorInfo.of(error)))
            self._scopes.pop(frame.id, None)
            self._left.pop(frame.id, None)
        finally:
            SCOPE.set(None)

    def _generate(self, frame: Generate) -> None:
        engine, options = self._engine, {"max_tokens": MAX_TOKENS, **frame.options}
        parsers: list[AnswerParser | None] = [None] * frame.n
        if frame.messages is not None:
            tokens, options, parser = prepare(engine, frame.messages, options)
            tokens = joined(engine, frame.prompt, tokens, frame.prefill)
            parsers = [AnswerParser(parser), *(AnswerParser(_again(engine, frame)) for _ in range(frame.n - 1))]
        else:
            assert frame.prompt is not None, "a prompt or messages"
            prompt, suffix = frame.prompt, frame.suffix
            tokens = infill(engine.tokenizer, prompt, suffix) if suffix else engine.encode(prompt)
        self._left[frame.id] = frame.n
        sequences: list[Sequence] = []
        for index, parser_of in enumerate(parsers):
            request = request_of(tokens, options | ({"index": index} if index else {}), engine.runner.sampling)
            sequences.append(engine.core.prepare(request, sequences[0] if sequences else None))
            self._follow(sequences[-1], Answer(frame, index, parser_of), frame.slot)
        engine.enqueue(sequences)

    def _follow(self, sequence: Sequence, answer: Answer, slot: int) -> None:
        answer.sequence, answer.slot = sequence, slots_of(self._engine).take(sequence, slot)
        sequence.listeners.append(lambda delta: self._step.append((answer, delta)))

    # ---- in the thread that makes the steps --------------------------------------------------------------

    def _deliver(self) -> None:
        """Tell of a step, before the next one is prepared: meanwhile the server has a core for it."""
        if not self._step:
            return
        deltas, self._step = self._step, []
        chunks: list[Chunk] = []
        for answer, delta in deltas:
            try:
                chunks.append(self._chunk(answer, delta))
            except Exception as error:  # of this answer alone: others go on
                self._emit(Failed(answer.id, ErrorInfo.of(error)))
        self._emit(Chunks(chunks))

    def _chunk(self, answer: Answer, delta: Delta) -> Chunk:
        text, reasoning, calls = delta.text, "", NO_CALLS
        if answer.parser is not None:
            text, reasoning, calls = _told(answer.parser.push(delta).events)
        last = self._last(answer) if delta.finish_reason is not None else {}
        return Chunk(
            answer.id,
            answer.index,
            text,
            reasoning,
            calls,
            list(delta.tokens),
            self._logprobs(delta.logprobs),
            delta.computed,
            delta.prompt_tokens,
            (answer.sequence.cached or 0) if answer.sequence is not None else 0,
            delta.finish_reason,
            **last,
        )

    def _last(self, answer: Answer) -> dict[str, Any]:
        """What the last chunk of an answer has beside the others."""
        left = self._left.pop(answer.id, 1) - 1  # a request that could not be begun is forgotten already
        if left:
            self._left[answer.id] = left
        else:
            self._scopes.pop(answer.id, None)
        sequence = answer.sequence
        assert sequence is not None
        used, prompt = usage_of(sequence), sequence.logprobs
        usage = Usage(
            used.prompt_tokens,
            used.completion_tokens,
            used.cached_tokens,
            used.drafted_tokens,
            used.accepted_tokens,
            used.prompt_seconds,
            used.completion_seconds,
        )
        scored = prompt.n_prompt is not None
        return {
            "usage": usage,
            "seed": sequence.sampler.random.seed if sequence.sampler else None,
            "prompt_logprobs": self._logprobs(prompt.prompt) if scored else None,
            "prompt_start": self._engine.tokenizer.token_bytes(sequence.request.prompt[0]) if scored else b"",
            "stop": sequence.output.stopped_by,
            "prompt": list(sequence.request.prompt) if answer.tell_prompt and not sequence.request.embedded else None,
            "slot": answer.slot,
            "error": ErrorInfo.of(sequence.error) if sequence.error is not None else None,
        }

    def _logprobs(self, logprobs: "list[TokenLogprob | None] | tuple[TokenLogprob | None, ...] | None") -> Any:
        if logprobs is None:
            return None
        token_bytes = self._engine.tokenizer.token_bytes
        return [
            entry
            and Logprob(
                entry.token,
                token_bytes(entry.token) or b"",
                entry.logprob,
                [Logprob(token, token_bytes(token) or b"", value) for token, value in entry.top],
            )
            for entry in logprobs
        ]


def _again(engine: Engine, frame: Generate) -> Any:
    """Another parser for the same conversation: each answer has its own."""
    assert frame.messages is not None
    return prepare(engine, frame.messages, dict(frame.options))[2]


def _told(events: tuple[ChatEvent, ...]) -> tuple[str, str, list[CallDelta]]:
    """Text, reasoning and calls of a chat delta."""
    if len(events) == 1 and isinstance(content := events[0], Content):  # as nearly all are
        return content.text, "", NO_CALLS
    text, reasoning, calls = "", "", []
    for event in events:
        match event:
            case Content(more):
                text += more
            case Reasoning(more):
                reasoning += more
            case CallBegin(index, id, name):
                calls.append(CallDelta(index, id, name))
            case CallArguments(index, more):
                calls.append(CallDelta(index, arguments=more))
            case CallDropped(index):
                calls.append(CallDelta(index, dropped=True))
    return text, reasoning, calls
