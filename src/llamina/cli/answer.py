"""An answer on its way: streamed, interrupted, measured."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from llamina.cli.terminal import note
from llamina.engine import Completion, Engine, Generation, Session, Turn, Usage

INTERRUPTED = 130


def begin(engine: Engine, prompt: str, system: str | None, raw: bool, options: dict[str, Any]) -> Generation | Turn:
    """Queue the prompt, as a conversation where the model has a template for one."""
    templated = not raw and engine.tokenizer.chat_template is not None
    if not templated and system is not None:
        raise click.UsageError("the model has no chat template to put --system into: write it into the prompt")
    if not templated:
        return engine.stream(prompt, **options)
    before = [{"role": "system", "content": system}] if system is not None else []
    messages = [*before, {"role": "user", "content": prompt.rstrip("\n")}]
    return engine.stream_chat(messages, **options)


def open_session(engine: Engine, path: str, system: str | None) -> Session:
    """The conversation that is saved there, or a new one."""
    if engine.tokenizer.chat_template is None:
        raise click.UsageError("the model has no chat template, and --session is a conversation: leave it out")
    if not Path(path).exists():
        return Session(engine, [{"role": "system", "content": system}] if system is not None else [])
    if system is not None:
        raise click.UsageError(f"{path} is under way, and --system begins a conversation: leave it out")
    return Session.load(engine, path)


class Answer:
    """A generation being printed, by a model that took `load_seconds` to load."""

    def __init__(self, generation: Generation | Turn, path: Path, load_seconds: float) -> None:
        self._generation = generation
        self._path = path
        self._load_seconds = load_seconds
        self._interrupted = False

    def print_text(self, verbose: bool, quiet: bool) -> int:
        """The answer as it comes on stdout, then its rates on stderr; the exit code."""
        last = ""
        for piece in self._pieces():
            click.echo(piece, nl=False)
            last = piece or last
        if not last.endswith("\n"):
            click.echo()
        completion = self._generation.result()
        if verbose:
            note(_report(completion, self._load_seconds))
        elif not quiet:
            note(_rates(completion))
        return INTERRUPTED if self._interrupted else 0

    def print_json(self) -> int:
        """The whole answer as one JSON object; the exit code."""
        for _ in self._pieces():
            pass
        click.echo(json.dumps(self._record(self._generation.result()), ensure_ascii=False))
        return INTERRUPTED if self._interrupted else 0

    def _pieces(self) -> Iterator[str]:
        with self._interruptible():
            for delta in self._generation:
                yield str(delta)

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
        return {
            "model": self._path.name,
            "text": completion.text,
            "tokens": completion.tokens,
            "finish_reason": completion.finish_reason,
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            },
            "seconds": {
                "load": round(self._load_seconds, 4),
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


def _rates(completion: Completion) -> str:
    """One line, such as `prompt 36 tokens, 210 tok/s · answer 12 tokens, 45.1 tok/s · first after 0.17 s`."""
    usage = completion.usage
    if not usage.completion_tokens:
        return f"prompt {usage.prompt_tokens} tokens · no answer"
    parts = [
        f"prompt {usage.prompt_tokens} tokens, {usage.prompt_rate:.1f} tok/s",
        f"answer {usage.completion_tokens} tokens, {usage.completion_rate:.1f} tok/s",
        f"first after {usage.prompt_seconds:.2f} s",
    ]
    return " · ".join(parts)


def _speculation(usage: Usage) -> str:
    if usage.speculation_off:
        return f"off: {usage.speculation_off}"
    share = f" ({usage.acceptance_rate:.0%})" if usage.drafted_tokens else ""
    return f"{usage.drafted_tokens} token(s) drafted, {usage.accepted_tokens} accepted{share}"


def _report(completion: Completion, load_seconds: float) -> str:
    """The durations and rates by the names that ollama's users know."""
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
        "finish reason": completion.finish_reason,
    }
    return "\n".join(f"{name + ':':21} {value}" for name, value in rows.items())
