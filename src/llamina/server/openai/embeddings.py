"""`/v1/embeddings`."""

import base64
from typing import Any, Literal

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.openai.schema import Embedding, Embeddings, PromptUsage


class EmbeddingsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """OpenAI's request; `pooling` and `normalize` are extensions."""

    input: str | list[Any]  # a text, texts, token ids, or lists of them
    model: str = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None
    pooling: Literal["mean", "max", "cls", "last", "rank"] | None = None
    normalize: bool = True


async def create(request: Request) -> Json[Embeddings]:
    """POST /v1/embeddings."""
    body = await read(request, EmbeddingsRequest)
    return json(await answer(request.app.state.server, body))


async def answer(server: Any, body: EmbeddingsRequest, **defaults: Any) -> Embeddings:
    """A `list` of embeddings. `defaults` are options of the engine where the request gives none."""
    inputs = read_inputs(body.input, server.config.limits.inputs)
    async with server.models.use(body.model) as (entry, model):
        options = {"pooling": body.pooling, "normalize": body.normalize, "adapters": model.adapters or None}
        found = await model.call("embed", inputs=inputs, **defaults | options)
    vectors = np.frombuffer(found["vectors"], np.float32).reshape(len(inputs), found["width"])
    vectors = first_dimensions(vectors, body.dimensions, body.normalize)
    data: list[Embedding] = [
        {"object": "embedding", "index": i, "embedding": _encoded(vector, body.encoding_format)}
        for i, vector in enumerate(vectors)
    ]
    tokens = sum(found["tokens"])
    usage: PromptUsage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": entry.id, "usage": usage}


def read_inputs(given: Any, most: int) -> list[Any]:
    """One text, several, one list of tokens, or several."""
    inputs = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else list(given)
    texts = all(isinstance(item, str) for item in inputs)
    if not texts and not all(isinstance(item, list) and all(type(t) is int for t in item) for item in inputs):
        raise ApiError(400, "input must be a text, a list of texts, token ids, or lists of token ids", param="input")
    if not inputs or any(not item for item in inputs):
        raise ApiError(400, "input is empty: each text needs a character, each list a token", param="input")
    if len(inputs) > most:
        raise ApiError(400, f"input has {len(inputs)} texts: {most} are allowed", param="input")
    return inputs


def first_dimensions(vectors: Any, dimensions: int | None, normalize: bool) -> Any:
    """The first dimensions (Matryoshka), of length 1 again."""
    if dimensions is None:
        return vectors
    if not 1 <= dimensions <= vectors.shape[1]:
        message = f"dimensions is {dimensions}: must be a number from 1 to {vectors.shape[1]}"
        raise ApiError(400, message, param="dimensions")
    cut = vectors[:, :dimensions]
    return cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12) if normalize else cut


def _encoded(vector: Any, format: str) -> Any:
    if format == "base64":
        return base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode()
    return vector.tolist()


routes = [Route("/v1/embeddings", create, methods=["POST"])]
