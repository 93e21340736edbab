"""What callers ask of a loaded model: text, conversations, embeddings, scores. Any thread may ask."""

import os
from collections import abc
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack, cast, overload

from llamina.adapters import Adapter
from llamina.backends import Program
from llamina.engine.cancellation import remember
from llamina.engine.core import Core
from llamina.engine.delta import Delta
from llamina.engine.embedded import Embedded, Prompt
from llamina.engine.metrics import Metrics
from llamina.engine.options import ChatOptions, GenerateOptions, StreamOptions
from llamina.engine.request import Request, request_of
from llamina.engine.runner.memory import Memory, measure
from llamina.engine.sequence import Listener, Sequence
from llamina.engine.snapshot.file import contents, write_file
from llamina.engine.snapshot.format import Snapshot
from llamina.engine.snapshot.transfer import resume, take_snapshot
from llamina.engine.stepper import Stepper
from llamina.engine.tasks import beam, n_best, scoring, torch_tensors
from llamina.engine.tasks.chat import ChatCompletion, Messages, Turn, conversation, open_turn
from llamina.engine.tasks.completion import Completion
from llamina.engine.tasks.fork import fork, rewind
from llamina.engine.tasks.generation import Generation
from llamina.engine.tasks.manual import ManualSequence
from llamina.engine.tasks.media import prompt_of, rendered, shown_prompt
from llamina.engine.tasks.pooling import Array, Pooling, pooling_of
from llamina.engine.tasks.scoring import Scales, Score, Text
from llamina.engine.tasks.tools import Rounds, ToolRun
from llamina.errors import RequestError
from llamina.sampling import Sampling
from llamina.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

MAX_TOKENS = 256  # of an answer, unless told otherwise


class Engine:
    """A loaded model. Verbs may be called from several threads: their requests are computed in the same batches."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.runner = core.runner
        self.stepper = Stepper(core)

    # ---- what it is --------------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Tokenizer:
        return self.runner.tokenizer

    @property
    def context(self) -> int:
        """How many tokens a sequence can have."""
        return self.runner.context

    @property
    def metrics(self) -> Metrics:
        return self.core.metrics

    @property
    def pooling(self) -> Pooling:
        """How `embed` makes one vector of a text's, unless told otherwise."""
        return pooling_of(self.runner.model.config, self.runner.model.causal)

    def memory(self) -> Memory:
        """Who has how much memory, in bytes."""
        return self.stepper.call(measure, self.core)

    # ---- text --------------------------------------------------------------------------------------------

    def encode(self, prompt: Text, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Text or a message's parts as prompt tokens; ids and rows pass through. Raises RequestError for others."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt, add_special=add_special, parse_special=parse_special)
        if isinstance(prompt, Prompt):
            return prompt
        kinds = {*map(type, prompt)} if isinstance(prompt, abc.Sequence) else set()
        if any(issubclass(kind, Embedded) for kind in kinds):
            return Prompt(cast(abc.Sequence[int | Embedded], prompt))
        if any(issubclass(kind, abc.Mapping) for kind in kinds):
            return shown_prompt(self, prompt, add_special, parse_special)
        return list(Request(cast(abc.Sequence[int], prompt)).prompt) if _counted(prompt) else []

    def stream(self, prompt: Text, **options: Unpack[StreamOptions]) -> Generation:
        """An iterator of deltas; `.result()` is the whole. Dropping it early cancels the sequence.

        Options are the fields of `Request` and of `Sampling`; `max_tokens` is 256 unless given. `on_delta` is told of
        every delta, by whichever thread makes the step.
        """
        given, listener = _listener({"max_tokens": MAX_TOKENS, **options})
        return self.start(request_of(self.encode(prompt), given, self.runner.sampling), on_delta=listener)

    def streams(self, prompt: Text, n: int, **options: Unpack[StreamOptions]) -> list[Generation]:
        """n answers to one prompt, which is computed once; the first is what `stream` would give."""
        given, listener = _listener({"max_tokens": MAX_TOKENS, **options})
        return n_best.begin(self, [self.encode(prompt)], n, given, listener)[0]

    @overload
    def generate(self, prompt: str | abc.Sequence[int], **options: Unpack[GenerateOptions]) -> Completion: ...

    @overload
    def generate(
        self, prompt: list[str] | tuple[str, ...] | list[list[int]], **options: Unpack[GenerateOptions]
    ) -> list[Completion]: ...

    def generate(
        self, prompt: Text | abc.Sequence[Text], **options: Unpack[GenerateOptions]
    ) -> Completion | list[Completion]:
        """Continue a prompt to its end, or each of several; options are those of `stream`.

        With n, other answers come as `alternatives`; with best_of, so many are generated and the n likeliest told; with
        beam_width (length_penalty, early_stopping), the n best that a beam search finds.
        """
        prompts = cast(abc.Sequence[Text], prompt) if _several(prompt) else [cast(Text, prompt)]
        given, listener = _listener({"max_tokens": MAX_TOKENS, **options})
        n, best_of = given.pop("n", 1), given.pop("best_of", None)
        if "beam_width" in given:
            answers = [beam.search(self, self.encode(text), n, best_of, dict(given)) for text in prompts]
        else:
            answers = n_best.answer(self, prompts, n_best.NBest(n, best_of), given, listener)
        return answers if _several(prompt) else answers[0]

    # ---- conversations -----------------------------------------------------------------------------------

    def render_chat(self, messages: Messages, **kwargs: Any) -> str:
        """The model's own chat template applied to messages, ready for its answer; pictures and sounds are marks."""
        return rendered(self.tokenizer, conversation(messages), kwargs)

    def chat_tokens(self, rendered: str) -> list[int]:
        """The tokens of a rendered chat. Where a template writes no BOS and the model wants it, it is put in front."""
        return prompt_of(self, rendered, {})

    def stream_chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Turn:
        """The model's turn in a conversation: an iterator of chat deltas; `.result()` is the whole.

        A text alone is a message of the user. Options are the fields of `ChatSettings` (tools, tool_choice, reasoning,
        ...) and those of `stream`.
        """
        given, listener = _listener(dict(options))
        return open_turn(self, messages, given, on_delta=listener)

    def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> ChatCompletion:
        """The model's answer to a conversation; options are those of `stream_chat`."""
        return self.stream_chat(messages, **options).result()

    def run_tools(
        self,
        messages: Messages,
        functions: abc.Sequence[abc.Callable[..., Any]],
        *,
        max_rounds: int = 8,
        **options: Unpack[ChatOptions],
    ) -> ToolRun:
        """`chat` with Python functions as tools, called until an answer needs none or `max_rounds` are used up."""
        rounds = Rounds(messages, functions, max_rounds, dict(options))
        while (done := rounds.take(self.chat(rounds.messages, **rounds.options))) is None:
            pass
        return done

    # ---- outputs -----------------------------------------------------------------------------------------

    def logits(self, tokens: str | abc.Iterable[int], adapters: Scales | None = None) -> Array:
        """Logits after every token, [tokens, vocab]; a text is encoded first."""
        return scoring.outputs(self, "logits", self._known(tokens), adapters)

    def hidden(self, tokens: str | abc.Iterable[int], adapters: Scales | None = None) -> Array:
        """The last hidden state of every token, normed as the output matrix sees it, [tokens, width]."""
        return scoring.outputs(self, "hidden", self._known(tokens), adapters)

    def logits_torch(self, tokens: str | abc.Iterable[int], adapters: Scales | None = None) -> "Tensor":
        """`logits` as a tensor of PyTorch, on the GPU if that computes them; else over the memory of the array.

        Raises RequestError if PyTorch is not installed.
        """
        return torch_tensors.logits(self, self._known(tokens), adapters)

    def _known(self, tokens: str | abc.Iterable[int]) -> list[int]:
        return self.encode(tokens if isinstance(tokens, str | Prompt) else list(tokens))

    def embed(
        self,
        texts: Text | abc.Sequence[Text],
        *,
        pooling: Pooling | None = None,
        normalize: bool = True,
        adapters: Scales | None = None,
        priority: int = 0,
    ) -> Array:
        """A vector for each text, [texts, width], of length 1 if `normalize`.

        `pooling` makes it of the tokens' hidden states: their mean or max, the first (cls) or the last. Without it, as
        the file says; if it says nothing, the last of a causal model, else the mean. `rank` gives a classifier's scores
        instead, as they are.
        """
        return scoring.embed(self, texts, pooling, normalize, adapters, priority)

    def embeddings_torch(
        self,
        texts: Text | abc.Sequence[Text],
        *,
        pooling: Pooling | None = None,
        normalize: bool = True,
        adapters: Scales | None = None,
    ) -> "Tensor":
        """`embed` as a tensor of PyTorch over the same memory. Raises RequestError if PyTorch is not installed."""
        return torch_tensors.tensor_of(scoring.embed(self, texts, pooling, normalize, adapters))

    def rerank(self, query: str, documents: abc.Sequence[str], *, adapters: Scales | None = None) -> Array:
        """How well each document answers the query, [documents]: the more the better, on the model's own scale."""
        return scoring.rerank(self, query, documents, adapters)

    def score(self, prompt: Text, continuation: Text, *, adapters: Scales | None = None) -> Score:
        """The log-probability of a continuation of a prompt, token by token."""
        return scoring.score(self, prompt, continuation, adapters)

    def token_scores(self, text: Text, *, adapters: Scales | None = None) -> Score:
        """The log-probability of each token of a text after the first.

        A text longer than the context is read in windows that overlap by half.
        """
        return scoring.token_scores(self, text, adapters)

    def perplexity(self, text: Text, *, adapters: Scales | None = None) -> float:
        """The exponential of the mean negative log-probability of a text's tokens: see `token_scores`."""
        return self.token_scores(text, adapters=adapters).perplexity

    def read(self, requests: abc.Sequence[Request]) -> list[Array]:
        """The outputs that each request reads; nothing of them is left if one cannot be computed."""
        return scoring.read(self, requests)

    # ---- sequences ---------------------------------------------------------------------------------------

    def submit(self, request: Request, *, on_delta: Listener | None = None) -> Sequence:
        """Queue a request. What it needs is compiled here, while others go on; raises if it cannot be computed."""
        sequence = self.core.prepare(request)
        if on_delta is not None:
            sequence.listeners.append(on_delta)
        self.enqueue([sequence])
        return sequence

    def enqueue(self, sequences: abc.Sequence[Sequence]) -> None:
        """Queue what `Core.prepare` made, all before the next step. Raises QueueFull, and then queues none of them."""
        for sequence in sequences:
            remember(lambda sequence=sequence: self.stepper.post(self.core.cancel, sequence))  # type: ignore[misc]
        self.stepper.call(self.core.enqueue, *sequences)

    def start(self, request: Request, *, on_delta: Listener | None = None) -> Generation:
        """Queue a request, and follow it from its first delta on."""
        return self.start_all([self.core.prepare(request)], on_delta)[0]

    def start_all(self, sequences: abc.Sequence[Sequence], on_delta: Listener | None = None) -> list[Generation]:
        """Queue what `Core.prepare` made, and follow each from its first delta on."""
        for sequence in sequences:
            if on_delta is not None:
                sequence.listeners.append(on_delta)  # which is told before the caller sees the delta
        generations = [Generation(self, sequence) for sequence in sequences]
        self.enqueue(sequences)
        return generations

    def follow(self, sequence: Sequence) -> Generation:
        """The deltas that a sequence, such as one that was forked or resumed, has yet to bring."""
        return Generation(self, sequence)

    def step(self) -> list[Delta]:
        """Make one step for all sequences; callers that wait for an answer do so by themselves."""
        return self.stepper.step()

    def sequence(self, *, adapters: Scales | None = None, cache_salt: str = "") -> ManualSequence:
        """An empty sequence whose tokens you choose: `forward(tokens)` gives logits. Requests may run beside it."""
        return ManualSequence(self, adapters or {}, cache_salt)

    def cancel(self, sequence: Sequence) -> None:
        """Stop working on a sequence; its pages are free at once."""
        self.stepper.call(self.core.cancel, sequence)

    def fork(self, sequence: Sequence, sampling: Sampling | None = None) -> Sequence:
        """A second sequence that goes on from where this one is. They share pages until they differ.

        Without `sampling` it says the same as the first: give it another seed.
        """
        twin: Sequence = self._between(fork, sequence, sampling)
        return twin

    def rewind(self, sequence: Sequence, n: int, tokens: abc.Sequence[int] = ()) -> None:
        """Take back the last n tokens that a sequence generated, and go on as if it had generated `tokens` instead.

        One that was done is taken up again, unless there is nothing left for it to do.
        """
        self._between(rewind, sequence, n, tokens)

    def snapshot(self, sequence: Sequence, path: str | os.PathLike[str] | None = None) -> bytes:
        """A sequence as bytes: its tokens, its KV cache, and the state of its sampler; written to `path` if given.

        Raises SnapshotError if the file cannot be written.
        """
        snapshot: Snapshot = self._between(take_snapshot, sequence)
        data = snapshot.pack()
        if path is not None:
            write_file(path, data)
        return data

    def resume(self, data: bytes | str | os.PathLike[str]) -> Sequence:
        """Go on with a sequence from a snapshot, its bytes or their file, as it would have gone on.

        One that was done is only remembered. Raises SnapshotError for what is none, or another model's.
        """
        sequence: Sequence = self._between(resume, Snapshot.unpack(contents(data)))
        return sequence

    def _between(self, function: abc.Callable[..., Any], *args: Any) -> Any:
        """A function of the core, called between two steps."""
        self.runner.check_open()
        return self.stepper.call(function, self.core, *args)

    # ---- adapters ----------------------------------------------------------------------------------------

    def load_adapter(self, path: str | os.PathLike[str], name: str | None = None) -> str:
        """Load a LoRA for requests to use by its name, which is that of the file unless given.

        One that adapts matrices which none has adapted before has the programs compiled again; sequences go on.
        """
        with self.runner.compiling:
            name, adapter, programs = self.runner.read_adapter(path, name)
            self._between(_install_adapter, name, adapter, programs)
        return name

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter. Raises RequestError if a request uses it."""
        with self.runner.compiling:
            self._between(_unload_adapter, name)

    def close(self) -> None:
        """End the backend's threads. Whatever is under way ends with an error."""
        self.stepper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an engine cannot be copied or pickled: load the model in each process")


def _install_adapter(core: Core, name: str, adapter: Adapter, programs: dict[Any, Program] | None) -> None:
    core.settle()
    core.runner.install_adapter(name, adapter, programs)


def _unload_adapter(core: Core, name: str) -> None:
    core.settle()
    core.limits.check_unused(name, (*core.running, *core.waiting))
    core.runner.remove_adapter(name)


def _listener(options: dict[str, Any]) -> tuple[dict[str, Any], Listener | None]:
    """The options without `on_delta`, and that."""
    listener = options.pop("on_delta", None)
    if listener is not None and not callable(listener):
        raise RequestError(f"on_delta is {listener!r}: it must be a function of a delta", "on_delta")
    return options, listener


def _several(prompt: object) -> bool:
    """Whether it is a list of prompts: texts, or lists of token ids."""
    if isinstance(prompt, str | bytes) or not isinstance(prompt, abc.Sequence):
        return False
    return len(prompt) > 0 and all(isinstance(item, str | list | tuple) for item in prompt)


def _counted(prompt: object) -> bool:
    """Whether there is something in it; what has no length is left to the request to refuse."""
    return not hasattr(prompt, "__len__") or len(prompt) > 0
