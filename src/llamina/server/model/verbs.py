"""What a model can be asked beside generating: one function a verb, with plain values in and out."""

import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from llamina.engine import Engine
from llamina.engine.snapshot.format import Snapshot
from llamina.engine.tasks.chat import prepare
from llamina.errors import RequestError, SnapshotError

VERBS: dict[str, Callable[..., Any]] = {}


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function be called by its name."""
    VERBS[function.__name__] = function
    return function


@verb
def embed(
    engine: Engine,
    inputs: list[str] | list[list[int]],
    pooling: str | None = None,
    normalize: bool = True,
    adapters: dict[str, float] | None = None,
    truncate: bool = False,
) -> dict[str, Any]:
    """{"vectors": float32 bytes of [inputs, width], "width", "tokens": of each input}.

    `truncate` cuts the end of an input that is longer than the context.
    """
    prompts = [engine.encode(text, parse_special=False) for text in inputs]
    if truncate:
        prompts = [_cut(engine, tokens) for tokens in prompts]
    vectors = engine.embed(prompts, pooling=pooling, normalize=normalize, adapters=adapters)  # type: ignore[arg-type]
    packed = np.ascontiguousarray(vectors, np.float32).tobytes()
    return {"vectors": packed, "width": vectors.shape[1], "tokens": [len(tokens) for tokens in prompts]}


def _cut(engine: Engine, tokens: list[int]) -> list[int]:
    """As many tokens as can be computed; a token that ends every input stays its last."""
    limits = engine.core.limits
    room = min(limits.context, limits.cache, limits.step or limits.context)
    if len(tokens) <= room:
        return tokens
    end = tokens[-1:] if engine.tokenizer.is_special(tokens[-1]) else []
    return tokens[: room - len(end)] + end


@verb
def rerank(
    engine: Engine, query: str, documents: list[str], adapters: dict[str, float] | None = None
) -> dict[str, Any]:
    """{"scores": of each document, "tokens": in all}."""
    scores = engine.rerank(query, documents, adapters=adapters)
    tokens = sum(len(engine.encode(text)) for text in (query, *documents))
    return {"scores": [float(score) for score in scores], "tokens": tokens}


@verb
def score(
    engine: Engine,
    prompt: str | list[int],
    continuation: str | list[int],
    adapters: dict[str, float] | None = None,
) -> dict[str, Any]:
    """{"tokens", "logprobs"} of a continuation."""
    found = engine.score(prompt, continuation, adapters=adapters)
    return {"tokens": found.tokens, "logprobs": found.logprobs}


@verb
def tokenize(
    engine: Engine, text: str, add_special: bool = False, parse_special: bool = True, with_pieces: bool = False
) -> dict[str, Any]:
    """{"tokens"}, and the bytes of each with `with_pieces`."""
    tokens = engine.encode(text, add_special=add_special, parse_special=parse_special)
    pieces = [engine.tokenizer.token_bytes(token) or b"" for token in tokens] if with_pieces else []
    return {"tokens": tokens, "pieces": pieces}


@verb
def detokenize(engine: Engine, tokens: list[int]) -> str:
    """The text of token ids. Raises RequestError for one outside the vocabulary."""
    engine.core.limits.check_tokens(tokens, "tokens")
    return engine.tokenizer.decode(tokens)


@verb
def chat_prompt(
    engine: Engine, messages: list[dict[str, Any]], options: dict[str, Any], prefill: str = ""
) -> dict[str, Any]:
    """{"tokens", "prompt"} of a conversation, as `Generate` would put it to the model."""
    tokens = joined(engine, None, prepare(engine, messages, options)[0], prefill)
    return {"tokens": tokens, "prompt": engine.tokenizer.decode(tokens, skip_special=False)}


@verb
def adapters(engine: Engine) -> list[str]:
    """The names of the loaded LoRAs."""
    return engine.runner.adapters.names


@verb
def load_adapter(engine: Engine, path: str, name: str | None = None) -> str:
    return engine.load_adapter(path, name)


@verb
def unload_adapter(engine: Engine, name: str) -> None:
    engine.unload_adapter(name)


@verb
def stats(engine: Engine) -> dict[str, Any]:
    """Gauges, memory and counters, for dashboards."""
    memory, metrics = engine.memory(), engine.metrics
    return {
        "gauges": metrics.gauges(),
        "memory": {name: getattr(memory, name) for name in memory.__slots__},
        "steps": metrics.steps,
        "prompt_tokens": metrics.prompt_tokens,
        "cached_tokens": metrics.cached_tokens,
        "generated_tokens": metrics.generated_tokens,
        "preemptions": metrics.preemptions,
        "requests": dict(metrics.requests),
        "histograms": metrics.distributions(),
    }


@verb
def metrics(engine: Engine, labels: dict[str, str] | None = None) -> str:
    """Prometheus' text format."""
    return engine.metrics.text(labels)


@verb
def sequences(engine: Engine) -> list[dict[str, Any]]:
    """The running and waiting sequences."""

    def look() -> list[dict[str, Any]]:
        return [
            {
                "id": sequence.id,
                "state": state,
                "prompt_tokens": len(sequence.request.prompt),
                "computed": sequence.computed,
                "generated": len(sequence.generated),
                "max_tokens": sequence.request.max_tokens,
                "cached_tokens": sequence.cached or 0,
            }
            for state, queue in (("running", engine.core.running), ("waiting", engine.core.waiting))
            for sequence in queue
        ]

    return engine.stepper.call(look)


@verb
def cancel_sequence(engine: Engine, id: int) -> bool:
    """Cancel a sequence by its id; whether there was one."""

    def find() -> bool:
        for sequence in [*engine.core.running, *engine.core.waiting]:
            if sequence.id == id:
                engine.core.cancel(sequence)
                return True
        return False

    return engine.stepper.call(find)


def joined(engine: Engine, before: str | list[int] | None, conversation: list[int], prefill: str) -> list[int]:
    """The tokens of a conversation, after others and with the beginning of an answer behind them."""
    tokens = conversation + engine.tokenizer.encode(prefill, continued=True)
    if not before:
        return tokens
    again = engine.tokenizer.add_bos and tokens[:1] == [engine.tokenizer.bos]
    return engine.encode(before) + (tokens[1:] if again else tokens)


SNAPSHOT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


@verb
def save_prompt(engine: Engine, prompt: str | list[int], folder: str, filename: str) -> dict[str, Any]:
    """Compute a prompt and write its KV cache into a file of the folder; {"tokens", "bytes"}."""
    from llamina.engine.request import request_of

    path = _inside(folder, filename)
    stream = engine.start(request_of(engine.encode(prompt), {"max_tokens": 1, "temperature": 0, "ignore_eos": True}))
    stream.result()
    data = engine.snapshot(stream.sequence)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
    return {"tokens": len(stream.sequence.request.prompt), "bytes": len(data)}


@verb
def restore_prompt(engine: Engine, folder: str, filename: str) -> dict[str, Any]:
    """Bring a saved KV cache back, for prompts that begin with the same tokens; {"tokens", "bytes"}."""
    path = _inside(folder, filename)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
            data = file.read()
    except OSError as error:
        raise SnapshotError(f"{filename} cannot be read: {error.strerror}") from error
    Snapshot.unpack(data)
    sequence = engine.resume(data)
    engine.cancel(sequence)
    return {"tokens": len(sequence.known), "bytes": len(data)}


def _inside(folder: str, filename: str) -> str:
    """The path of a plain file name in a folder. Raises RequestError for anything that could lead elsewhere."""
    if not SNAPSHOT_NAME.fullmatch(filename) or ".." in filename:
        raise RequestError(f"filename is {filename!r}: letters, digits, '.', '_' and '-' are expected", "filename")
    return os.path.join(os.path.realpath(folder), filename)
