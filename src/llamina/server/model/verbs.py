"""What a model can be asked beside generating: one function a verb, with plain values in and out."""

from collections.abc import Callable
from typing import Any

import numpy as np

from llamina.chat import Tools
from llamina.engine import Engine
from llamina.engine.embedded import Prompt, join
from llamina.engine.status import sequences, stats
from llamina.engine.tasks.chat import ChatSettings, prepare, render
from llamina.engine.tasks.media import shown
from llamina.engine.tasks.scoring import pair_tokens
from llamina.errors import RequestError
from llamina.server.model.infill import infill
from llamina.server.model.slots import describe as describe_slots
from llamina.server.model.slots import erase, restore, save

VERBS: dict[str, Callable[..., Any]] = {}


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function be called by its name."""
    VERBS[function.__name__] = function
    return function


verb(stats)
verb(sequences)


@verb
def embed(
    engine: Engine,
    inputs: list[str] | list[list[int]],
    pooling: str | None = None,
    normalize: bool = True,
    adapters: dict[str, float] | None = None,
    truncate: bool = False,
    priority: int = 0,
) -> dict[str, Any]:
    """{"vectors": float32 bytes of [inputs, width], "width", "tokens": of each input}.

    `truncate` cuts the end of an input that is longer than the context.
    """
    prompts = [engine.encode(text, parse_special=False) for text in inputs]
    if truncate:
        prompts = [_cut(engine, tokens) for tokens in prompts]
    options: Any = {"pooling": pooling, "normalize": normalize, "adapters": adapters, "priority": priority}
    vectors = engine.embed(prompts, **options)
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
    pairs = [pair_tokens(engine, query, document) for document in documents]
    scores = engine.embed(pairs, pooling="rank", adapters=adapters)[:, 0]
    return {"scores": [float(score) for score in scores], "tokens": sum(map(len, pairs))}


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
def beam_search(engine: Engine, prompt: str | list[int], n: int, options: dict[str, Any]) -> dict[str, Any]:
    """{"answers": the n best, "usage", "tokens": how many were read and told}; options are those of `generate`."""
    best: Any = engine.generate(prompt, n=n, **options)
    answers = [best, *best.alternatives]
    made = sum(answer.usage.completion_tokens for answer in answers)
    usage = {
        "prompt_tokens": best.usage.prompt_tokens,
        "completion_tokens": made,
        "cached_tokens": best.usage.cached_tokens,
        "prompt_seconds": best.usage.prompt_seconds,
        "completion_seconds": best.usage.completion_seconds,
    }
    told = [{"text": x.text, "finish_reason": x.finish_reason, "score": x.score} for x in answers]
    return {"answers": told, "usage": usage, "tokens": best.usage.prompt_tokens + made}


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
    said = [token for token in tokens if token >= 0]  # rows of pictures and sounds have no text
    return {"tokens": tokens, "prompt": engine.tokenizer.decode(said, skip_special=False)}


@verb
def rendered_chat(engine: Engine, messages: list[dict[str, Any]], options: dict[str, Any]) -> str:
    """The text of a conversation by the model's chat template; `options` are `template_options` and `tools`."""
    settings = ChatSettings(**options)
    rendered, _, _, media = render(engine, messages, settings, Tools(settings.tools))
    return shown(rendered, media)


@verb
def spellings(engine: Engine, tokens: list[int]) -> list[str]:
    """How the vocabulary spells each token."""
    return [engine.tokenizer.token_text(token) for token in tokens]


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
def metrics(engine: Engine, labels: dict[str, str] | None = None) -> str:
    """Prometheus' text format."""
    return engine.metrics.text(labels)


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
    tokens = join(conversation, engine.tokenizer.encode(prefill, continued=True))
    if not before:
        return tokens
    again = engine.tokenizer.add_bos and tokens[:1] == [engine.tokenizer.bos]
    if again and isinstance(tokens, Prompt):
        raise RequestError(
            "a conversation with pictures or sounds cannot follow other tokens: leave the prompt out", "prompt"
        )
    return join(engine.encode(before), tokens[1:] if again else tokens)


@verb
def slots(engine: Engine) -> list[dict[str, Any]]:
    """What each slot is doing, or did last."""
    return describe_slots(engine)


@verb
def save_slot(engine: Engine, id: int, folder: str, filename: str) -> dict[str, Any]:
    return save(engine, id, folder, filename)


@verb
def restore_slot(engine: Engine, id: int, folder: str, filename: str) -> dict[str, Any]:
    return restore(engine, id, folder, filename)


@verb
def erase_slot(engine: Engine, id: int) -> int:
    """How many tokens it had."""
    return erase(engine, id)


@verb
def mixed_prompt(engine: Engine, parts: list[str | int]) -> list[int]:
    """The tokens of a prompt that is made of texts and token ids."""
    tokens: list[int] = []
    for at, part in enumerate(parts):
        tokens += engine.encode(part, add_special=at == 0) if isinstance(part, str) else [part]
    engine.core.limits.check_tokens(tokens, "prompt")
    return tokens


@verb
def infill_prompt(engine: Engine, prefix: str, suffix: str, prompt: str, extra: list[dict[str, str]]) -> list[int]:
    """The tokens of a prompt to fill in what is between a prefix and a suffix: see `infill.py`."""
    return infill(engine.tokenizer, prefix, suffix, prompt, extra)


@verb
def written_out(engine: Engine, tokens: list[int]) -> str:
    """The text of token ids, control tokens by name. Raises RequestError for one outside the vocabulary."""
    engine.core.limits.check_tokens(tokens, "tokens")
    return engine.tokenizer.decode(tokens, skip_special=False)
