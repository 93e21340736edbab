"""`/v1/score`: how alike two texts are, or how well one answers the other, in vLLM's shape."""

import math
import time
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.ids import new_id
from llamina.server.model import Model
from llamina.server.native.schema import Scores


class ScoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One text against one or several, or several in pairs."""

    text_1: str | list[str]
    text_2: str | list[str]
    model: str = ""
    use_activation: bool = True  # a classifier's score between 0 and 1, or as the model computes it
    user: str | None = None

    def pairs(self, most: int) -> list[tuple[str, str]]:
        """The texts that are compared. Raises ApiError."""
        second = [self.text_2] if isinstance(self.text_2, str) else self.text_2
        first = [self.text_1] if isinstance(self.text_1, str) else self.text_1
        first = first * len(second) if len(first) == 1 else first
        if len(first) != len(second):
            message = f"text_1 has {len(first)} texts and text_2 {len(second)}: text_1 must have one, or as many"
            raise ApiError(400, message, param="text_1")
        if not 1 <= len(second) <= most or not all(first) or not all(second):
            message = f"text_2 has {len(second)} texts: 1 to {most} are allowed, each with a character"
            raise ApiError(400, message, param="text_2")
        return list(zip(first, second, strict=True))


async def create(request: Request) -> Json[Scores]:
    """POST /v1/score: by the model's classifier, or without one by the cosine of embeddings."""
    server = request.app.state.server
    body = await read(request, ScoreRequest)
    pairs = body.pairs(server.config.limits.inputs)
    async with server.models.use(body.model) as (entry, model):
        classify = model.info.pooling == "rank"
        scores, tokens = await (_classified(model, pairs, body.use_activation) if classify else _alike(model, pairs))
    return json(
        {
            "id": new_id("score-"),
            "object": "list",
            "created": int(time.time()),
            "model": entry.id,
            "data": [{"index": at, "object": "score", "score": score} for at, score in enumerate(scores)],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
        }
    )


async def _classified(model: Model, pairs: list[tuple[str, str]], activate: bool) -> tuple[list[float], int]:
    scores, tokens = [], 0
    for query, document in pairs:
        found = await model.call("rerank", query=query, documents=[document], adapters=model.adapters or None)
        scores.append(float(found["scores"][0]))
        tokens += found["tokens"]
    return [1 / (1 + math.exp(-score)) for score in scores] if activate else scores, tokens


async def _alike(model: Model, pairs: list[tuple[str, str]]) -> tuple[list[float], int]:
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    found: dict[str, Any] = await model.call("embed", inputs=texts, adapters=model.adapters or None)
    vectors = np.frombuffer(found["vectors"], np.float32).reshape(len(texts), found["width"])
    by_text = dict(zip(texts, vectors, strict=True))
    return [float(by_text[a] @ by_text[b]) for a, b in pairs], sum(found["tokens"])


routes = [Route(path, create, methods=["POST"]) for path in ("/v1/score", "/score")]
