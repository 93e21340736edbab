"""An answer: asked for, streamed, interrupted, measured. Here the command line meets the engine."""

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.advice import SHIFT, advised
from llamina.cli.terminal import busy, note
from llamina.engine import ChatCompletion, ChatDelta, Completion, Delta, Engine, Generation, Session, Turn, Usage

if TYPE_CHECKING:
    from llamina.gguf import GGUF

INTERRUPTED = 130


def check_template(file: "GGUF", system: str | None, session: str | None, media: str | None = None) -> None:
    """Raises if the file has no chat template where one is needed, as by the option `media`.

    The metadata tells: nothing is compiled for it.
    """
    if "tokenizer.chat_template" in file.metadata:
        return
    if media:
        raise click.UsageError(f"the model has no chat template to put {media} into: it reads text only")
    if session is not None:
        raise click.UsageError("the model has no chat template, and --session is a conversation: leave it out")
    if system is not None:
        raise click.UsageError("the model has no chat template to put --system into: write it into the prompt")


def begin(
    engine: Engine, prompt: str, system: str | None, raw: bool, options: dict[str, Any], media: Sequence[Any] = ()
) -> Generation | Turn:
    """Submit the prompt, rendered by the model's chat template if it has one and `raw` is not asked for.

    Pictures and sounds stand in front of it.
    """
    with advised(SHIFT):
        if raw or engine.tokenizer.chat_template is None:
            return engine.stream(prompt, **options)
        messages = [*_system(system), {"role": "user", "content": _content(prompt, media)}]
        return engine.stream_chat(messages, **options)


def prompt_tokens(engine: Engine, prompt: str, system: str | None, raw: bool) -> list[int]:
    """The tokens that `begin` submits for a text."""
    if raw or engine.tokenizer.chat_template is None:
        return engine.encode(prompt)
    messages = [*_system(system), {"role": "user", "content": _content(prompt, ())}]
    return engine.chat_tokens(engine.render_chat(messages))


def proceed(session: Session, prompt: str, options: dict[str, Any], media: Sequence[Any] = ()) -> Turn:
    """Submit the next message of a conversation."""
    with advised(SHIFT):
        return session.ask(_content(prompt, media), **options)


def _content(prompt: str, media: Sequence[Any]) -> str | list[Any]:
    text = prompt.rstrip("\n")
    return [*media, {"type": "text", "text": text}] if media else text


def open_session(engine: Engine, path: str, system: str | None) -> Session:
    """The conversation that is saved in a file, or a new one."""
    if not Path(path).exists():
        return Session(engine, _system(system))
    if system is not None:
        raise click.UsageError(f"{path} holds a conversation, and --system begins a new one: leave it out")
    return Session.load(engine, path)


def _system(text: str | None) -> list[dict[str, Any]]:
    return [] if text is None else [{"role": "system", "content": text}]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Of an answer: the model's file, how long loading took, and the limits on its length."""

    path: Path
    load_seconds: float
    context: int
    max_tokens: int | None


class Answer:
    """A generation being printed."""

    def __init__(self, generation: Generation | Turn, circumstances: Circumstances) -> None:
        self._generation = generation
        self._circumstances = circumstances
        self._interrupted = False

    def print_text(self, verbose: bool, quiet: bool) -> int:
        """The answer as it comes on stdout, then why it was cut and its rates on stderr; the exit code.

        The model's reasoning goes to stderr, dim, where that is a terminal.
        """
        last, deltas = "", self._deltas()
        with busy(f"reading the prompt, {self._generation.usage.prompt_tokens} tokens", quiet):
            first = next(deltas, None)
        for delta in chain([first] if first else [], deltas):
            if isinstance(delta, ChatDelta) and not quiet and sys.stderr.isatty():
                click.secho(delta.reasoning, err=True, dim=True, nl=False)
            click.echo(str(delta), nl=False)
            last = str(delta) or last
        if not last.endswith("\n"):
            click.echo()
        completion = self._generation.result()
        if not quiet and (reason := _cut(completion, self._circumstances)):
            note(f"(cut: {reason})")
        if verbose:
            note(_report(completion, self._circumstances.load_seconds))
        elif not quiet:
            note(_rates(completion))
        return INTERRUPTED if self._interrupted else 0

    def print_json(self, quiet: bool) -> int:
        """The whole answer as one JSON object; the exit code."""
        with busy("answering", quiet):
            for _ in self._deltas():
                pass
        click.echo(json.dumps(self._record(self._generation.result()), ensure_ascii=False))
        return INTERRUPTED if self._interrupted else 0

    def _deltas(self) -> "Iterator[Delta | ChatDelta]":
        with self._interruptible():
            yield from self._generation

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C ends the generation after the step under way, so that no step is left half done."""

        def stop(number: int, frame: object) -> None:
            self._interrupted = True
            self._generation.stop()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a second one does not wait

        try:
            before = signal.signal(signal.SIGINT, stop)
        except ValueError:  # not the main thread: signals are somebody else's
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _record(self, completion: Completion) -> dict[str, Any]:
        usage = completion.usage
        parsed: dict[str, Any] = {}
        if isinstance(completion, ChatCompletion):
            parsed = {"reasoning": completion.reasoning} if completion.reasoning else {}
        return {
            "model": self._circumstances.path.name,
            "text": completion.text,
            **parsed,
            "tokens": completion.tokens,
            "finish_reason": completion.finish_reason,
            "seed": completion.seed,
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            },
            "seconds": {
                "load": round(self._circumstances.load_seconds, 4),
                "prompt": round(usage.prompt_seconds, 4),
                "completion": round(usage.completion_seconds, 4),
            },
            "speculation": {
                "drafted_tokens": usage.drafted_tokens,
                "accepted_tokens": usage.accepted_tokens,
                "acceptance_rate": round(usage.acceptance_rate, 4),
                "off": usage.speculation_off,
            },
            "rates": {
                "prompt_tokens_per_second": round(usage.prompt_rate, 2),
                "completion_tokens_per_second": round(usage.completion_rate, 2),
            },
        } | ({"logprobs": [asdict(x) for x in completion.logprobs if x]} if completion.logprobs is not None else {})


def _cut(completion: Completion, limits: Circumstances) -> str | None:
    """Why the answer ended before the model ended it, and what to do; None if it did not."""
    if completion.finish_reason != "length":
        return None
    usage = completion.usage
    if usage.completion_tokens == limits.max_tokens:
        return f"the answer reached -n {_tokens(usage.completion_tokens)}"
    known = usage.prompt_tokens + usage.completion_tokens
    if known < limits.context:
        return f"the KV cache is full at {known} tokens; use another --kv-type or --context-shift"
    return f"the context of {limits.context} tokens is full; raise -c or use --context-shift"


def _rates(completion: Completion) -> str:
    """One line, such as `prompt 36 tokens, 210.0 tok/s · answer 12 tokens, 45.1 tok/s · first token after 0.17 s`."""
    usage = completion.usage
    if not usage.completion_tokens:
        return f"prompt {_tokens(usage.prompt_tokens)} · no answer"
    rate = f", {usage.completion_rate:.1f} tok/s" if usage.completion_tokens > 1 else ""  # the first has none
    parts = [
        f"prompt {_tokens(usage.prompt_tokens)}, {usage.prompt_rate:.1f} tok/s",
        f"answer {_tokens(usage.completion_tokens)}{rate}",
        f"first token after {usage.prompt_seconds:.2f} s",
    ]
    return " · ".join(parts)


def _tokens(count: int) -> str:
    return f"{count} token" + "s" * (count != 1)


def _speculation(usage: Usage) -> str:
    if usage.speculation_off:
        return f"off: {usage.speculation_off}"
    share = f" ({usage.acceptance_rate:.0%})" if usage.drafted_tokens else ""
    return f"{usage.drafted_tokens} draft token(s), {usage.accepted_tokens} accepted{share}"


def _report(completion: Completion, load_seconds: float) -> str:
    """Durations and rates, by ollama's names for them."""
    usage = completion.usage
    total = load_seconds + usage.prompt_seconds + usage.completion_seconds
    rows = {
        "total duration": f"{total:.3f} s",
        "load duration": f"{load_seconds:.3f} s",
        "prompt eval count": f"{usage.prompt_tokens} token(s)",
        "prompt eval duration": f"{usage.prompt_seconds:.3f} s",
        "prompt eval rate": f"{usage.prompt_rate:.2f} tokens/s",
        "eval count": f"{usage.completion_tokens} token(s)",
        "eval duration": f"{usage.completion_seconds:.3f} s",
        "eval rate": f"{usage.completion_rate:.2f} tokens/s",
        "speculation": _speculation(usage),
        "seed": completion.seed,
        "finish reason": completion.finish_reason,
    }
    return "\n".join(f"{name + ':':21} {value}" for name, value in rows.items())
