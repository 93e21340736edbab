"""What callers ask of a loaded model: text and conversations, beside what it reads."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from llamina.engine import several
from llamina.engine.beam import SEARCH, BeamSearch, Search
from llamina.engine.branch import fork, rewind
from llamina.engine.dispatch import Rounds, ToolRun
from llamina.engine.generation import Generation
from llamina.engine.memory import Memory, measure
from llamina.engine.readings import Readings
from llamina.engine.request import Request, request_of
from llamina.engine.result import Completion
from llamina.engine.shelf import put_away, take_up
from llamina.engine.snapshot import Snapshot
from llamina.engine.turn import ChatCompletion, Turn, open_turn
from llamina.sampling import Sampling

Message = Mapping[str, Any]


class Engine(Readings):
    """A loaded model and the requests it is working on. Not for several threads at once."""

    def stream(self, prompt: str | Sequence[int], *, max_tokens: int | None = 256, **options: Any) -> Generation:
        """An iterator of text pieces; `.result()` is the whole. Dropping it early cancels the request.

        Options are the fields of `Request` and of `Sampling`.
        """
        request = request_of(self.encode(prompt), max_tokens=max_tokens, **options)
        return Generation(self, self.submit(request))

    def streams(self, prompt: str | Sequence[int], n: int, **options: Any) -> list[Generation]:
        """n answers to one prompt, which is computed once; the first is what `stream` would give."""
        return several.begin(self, self.encode(prompt), n, {"max_tokens": 256, **options})

    def generate(
        self, prompt: str | Sequence[int], *, n: int = 1, best_of: int | None = None, **options: Any
    ) -> Completion:
        """Continue a prompt to its end; options are those of `stream`.

        With n, other answers come as `alternatives`; with best_of, so many are made and the n likeliest told; with
        beam_width (length_penalty, early_stopping), the n best that a beam search finds.
        """
        if "beam_width" in options:
            return self.search(prompt, n=n, best_of=best_of, **options).run()
        asked, options = several.Several(n, best_of), {"max_tokens": 256, **options}
        begun = several.begin(self, self.encode(prompt), asked.count, asked.options(options))
        return asked.choose([generation.result() for generation in begun], options)

    def search(self, prompt: str | Sequence[int], *, n: int = 1, best_of: int | None = None, **options: Any) -> Search:
        """A beam search that has begun; whoever steps the engine polls it after each step and closes it at the end."""
        how = {name: options.pop(name) for name in SEARCH if name in options}
        options |= {"best_of": best_of} if best_of is not None else {}
        return BeamSearch(n=n, **how).begin(self, self.encode(prompt), options)

    def render_chat(self, messages: Sequence[dict[str, Any]], **kwargs: Any) -> str:
        """The model's own chat template applied to messages, ready for its answer."""
        return self.tokenizer.render_chat(messages, **kwargs)

    def stream_chat(self, messages: Sequence[Message], **options: Any) -> Turn:
        """The model's turn in a conversation: an iterator of events; `.result()` is the whole.

        Options are the fields of `Talk` (tools, tool_choice, reasoning, ...) and those of `stream`.
        """
        return open_turn(self, messages, options)

    def chat(self, messages: Sequence[Message], **options: Any) -> ChatCompletion:
        """The model's answer to a conversation; options are those of `stream_chat`."""
        return self.stream_chat(messages, **options).result()

    def run_tools(
        self,
        messages: Sequence[Message],
        functions: Sequence[Callable[..., Any]],
        *,
        max_rounds: int = 8,
        **options: Any,
    ) -> ToolRun:
        """`chat` with Python functions as tools, called until an answer needs none or `max_rounds` are used up."""
        rounds = Rounds(messages, functions, max_rounds, options)
        while (done := rounds.take(self.chat(rounds.said, **rounds.options))) is None:
            pass
        return done

    def chat_tokens(self, rendered: str) -> list[int]:
        """The tokens of a rendered chat. Where a template writes no BOS and the model wants it, it is put in front."""
        tokens, bos = self.encode(rendered, add_special=False), self.tokenizer.bos
        wanted = self.tokenizer.add_bos and bos is not None and tokens[:1] != [bos]
        return [bos, *tokens] if wanted and bos is not None else tokens

    def fork(self, request: Request, sampling: Sampling | None = None) -> Request:
        """A second request that goes on from where this one is. They share pages until they differ.

        Without `sampling` it says the same as the first: give it another seed.
        """
        self.check_open()
        return fork(self, request, sampling)

    def rewind(self, request: Request, n: int, tokens: Sequence[int] = ()) -> None:
        """Take back the last n tokens that a request made, and go on as if it had made `tokens` instead.

        One that was done is taken up again, unless there is nothing left for it to do.
        """
        self.check_open()
        rewind(self, request, n, tokens)

    def follow(self, request: Request) -> Generation:
        """The text that a request has yet to make; for one that was forked or resumed."""
        request.output.read = len(request.output.pieces)
        return Generation(self, request)

    def snapshot(self, request: Request) -> bytes:
        """A request as bytes: its tokens, what is computed of them, and where its sampler stands."""
        self.check_open()
        return put_away(self, request).pack()

    def resume(self, data: bytes) -> Request:
        """Go on with a request from a snapshot, as it would have gone on; one that was done is only remembered."""
        self.check_open()
        return take_up(self, Snapshot.unpack(data))

    def memory(self) -> Memory:
        """Who has how much memory, in bytes."""
        return measure(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
