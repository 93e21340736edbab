"""`/api/embed`, and `/api/embeddings` as it was before."""

import time
from typing import Any

import msgspec
import numpy as np
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.errors import ApiError
from llamina.server.http import Json, Value, json, read
from llamina.server.models import Entry
from llamina.server.ollama.modelfile import modelfile_of
from llamina.server.ollama.names import find, keep
from llamina.server.ollama.options import seconds
from llamina.server.ollama.schema import EmbedAnswer, EmbeddingAnswer
from llamina.server.openai.embeddings import first_dimensions


class EmbedRequest(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    input: str | list[str]
    truncate: bool | None = None  # cut the end of inputs that are too long; unless it is false
    dimensions: int | None = None
    options: dict[str, Any] | None = None
    keep_alive: float | str | None = None


class EmbeddingsRequest(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    prompt: str | None = None
    options: dict[str, Any] | None = None
    keep_alive: float | str | None = None


async def embed(request: Request) -> Json[EmbedAnswer]:
    """POST /api/embed: vectors of length 1."""
    started = time.perf_counter_ns()
    body, limits = await read(request, EmbedRequest), request.app.state.server.config.limits
    inputs = body.input if isinstance(body.input, list) else [body.input] if body.input else []
    if not all(inputs):
        raise ApiError(400, "input has an empty text: each needs a character", param="input")
    if len(inputs) > limits.inputs:
        raise ApiError(400, f"input has {len(inputs)} texts: {limits.inputs} are allowed", param="input")
    entry, keeps = find(request.app.state.server.models, body.model), seconds(body.keep_alive)
    vectors, tokens, loaded = await _vectors(
        request, entry, body.options, inputs, truncate=body.truncate is not False, normalize=True
    )
    answer: EmbedAnswer = {
        "model": body.model,
        "embeddings": first_dimensions(vectors, body.dimensions or None, True).tolist() if inputs else [],
        "total_duration": time.perf_counter_ns() - started,
        "load_duration": loaded - started,
        "prompt_eval_count": tokens,
    }
    return _kept(request, json(answer), entry, keeps)


async def embeddings(request: Request) -> Json[EmbeddingAnswer]:
    """POST /api/embeddings: one vector, as the model makes it."""
    body = await read(request, EmbeddingsRequest)
    entry, keeps = find(request.app.state.server.models, body.model), seconds(body.keep_alive)
    inputs = [body.prompt] if body.prompt else []
    vectors, _, _ = await _vectors(request, entry, body.options, inputs, truncate=False, normalize=False)
    answer: EmbeddingAnswer = {"embedding": vectors[0].tolist() if inputs else []}
    return _kept(request, json(answer), entry, keeps)


async def _vectors(
    request: Request,
    entry: Entry,
    options: dict[str, Any] | None,
    inputs: list[str],
    truncate: bool,
    normalize: bool,
) -> tuple[Any, int, int]:
    """The vectors, how many tokens they were made of, and when the model was loaded. No inputs only load it."""
    async with request.app.state.server.models.use(entry.id) as (_, model):
        loaded = time.perf_counter_ns()
        modelfile_of(entry).options(options).check_context(model.info.context)
        if not inputs:
            return np.empty((0, 0), np.float32), 0, loaded
        found = await model.call("embed", inputs=inputs, normalize=normalize, truncate=truncate)
    vectors = np.frombuffer(found["vectors"], np.float32).reshape(len(inputs), found["width"])
    return vectors, sum(found["tokens"]), loaded


def _kept(request: Request, response: Json[Value], entry: Entry, keeps: float | None) -> Json[Value]:
    response.background = BackgroundTask(keep, request.app.state.server.models, entry, keeps)
    return response


routes = [
    Route("/api/embed", embed, methods=["POST"]),
    Route("/api/embeddings", embeddings, methods=["POST"]),
]
