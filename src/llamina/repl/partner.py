"""Who answers in a conversation: what the terminal needs of a model, wherever it runs."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from llamina.repl.server_events import Snapshot

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of an answer."""

    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """An answer in numbers. Rates are tokens per second; None where nobody knows."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_token_seconds: float | None = None
    rate: float | None = None
    finish_reason: str = "stop"

    def line(self, context: int | None) -> str:
        """One line, such as `12 tokens, 45.1 tok/s · first token after 0.17 s · context 5 % of 2048`."""
        parts = [f"{self.completion_tokens} token" + "s" * (self.completion_tokens != 1)]
        if self.rate is not None and self.completion_tokens > 1:
            parts[0] += f", {self.rate:.1f} tok/s"
        if self.first_token_seconds is not None:
            parts.append(f"first token after {self.first_token_seconds:.2f} s")
        if context:
            used = self.prompt_tokens + self.completion_tokens
            parts.append(f"context {100 * used / context:.0f} % of {context}")
        if self.finish_reason not in ("stop", "tool_calls"):
            parts.append({"length": "cut: the limit of tokens is reached", "cancelled": "stopped"}[self.finish_reason])
        return " · ".join(parts)


class Reply(Protocol):
    """An answer on its way: iterate over it for pieces."""

    def __iter__(self) -> Iterator[Piece]: ...

    def stop(self) -> None:
        """End it soon; for a signal handler."""
        ...

    def message(self) -> dict[str, Any]:
        """The answer so far, as a message with its tool calls."""
        ...

    def figures(self) -> Figures:
        """When it is over."""
        ...


class Partner(Protocol):
    """A model that one can talk to. Methods raise LlaminaError for what cannot be done."""

    @property
    def name(self) -> str: ...

    @property
    def context(self) -> int | None:
        """Tokens of a conversation that it can hold; None if that is not known."""
        ...

    def answer(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Reply: ...

    def check(self, options: Mapping[str, Any]) -> None:
        """Raises for options that it does not have."""
        ...

    def models(self) -> list[str]:
        """Those that `use` can switch to."""
        ...

    def use(self, name: str) -> None:
        """Go on with another model."""
        ...

    def stats(self) -> dict[str, str]:
        """What there is to know of it, by names for people."""
        ...

    def snapshots(self) -> AsyncIterator[Snapshot]:
        """What is counted and done where the model runs, once a second, as a server's dashboard has it."""
        ...

    def save(self, path: Path, messages: Sequence[Message]) -> str:
        """Write a conversation down; what was written, for people."""
        ...

    def load(self, path: Path) -> list[dict[str, Any]]:
        """The messages of a conversation that was saved."""
        ...

    def close(self) -> None: ...
