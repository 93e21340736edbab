"""What callers ask of a loaded model: text, conversations, logits."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from llamina.engine.core import Core
from llamina.engine.generation import Generation
from llamina.engine.memory import Memory, measure
from llamina.engine.request import Request, request_of
from llamina.engine.result import Completion
from llamina.engine.shelf import put_away, take_up
from llamina.engine.snapshot import Snapshot


class Engine(Core):
    """A loaded model and the requests it is working on. Not for several threads at once."""

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

    def follow(self, request: Request) -> Generation:
        """The text that a request has yet to make; for one that was forked or resumed."""
        request.output.read = len(request.output.pieces)
        return Generation(self, request)

    def snapshot(self, request: Request) -> bytes:
        """A request as bytes: its tokens, what is computed of them, and where its sampler stands."""
        self._check_open()
        return put_away(self, request).pack()

    def resume(self, data: bytes) -> Request:
        """Go on with a request from a snapshot, as it would have gone on; one that was done is only remembered."""
        self._check_open()
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
