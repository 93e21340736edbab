"""`/embedding` and `/embeddings`: vectors in llama.cpp's own shape."""

from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.native.schema import NativeEmbedding
from llamina.server.openai.embeddings import read_inputs


class EmbeddingRequest(msgspec.Struct, forbid_unknown_fields=True):
    """llama.cpp's fields; `embd_normalize` is -1 (as they are) or 2 (of length 1)."""

    content: str | list[Any] | None = None
    input: str | list[Any] | None = None
    model: str = ""
    embd_normalize: int = 2

    def check(self) -> Any:
        """What is embedded. Raises ApiError."""
        if (self.content is None) == (self.input is None):
            raise ApiError(400, "give either content or input", param="content")
        if self.embd_normalize not in (-1, 2):
            message = f"embd_normalize is {self.embd_normalize}: must be -1 (as they are) or 2 (of length 1)"
            raise ApiError(400, message, param="embd_normalize")
        return self.content if self.content is not None else self.input


async def create(request: Request) -> Json[list[NativeEmbedding]]:
    """POST /embedding."""
    server = request.app.state.server
    body = await read(request, EmbeddingRequest)
    inputs = read_inputs(body.check(), server.config.limits.inputs)
    async with server.models.use(body.model) as (_, model):
        found = await model.call(
            "embed", inputs=inputs, normalize=body.embd_normalize == 2, adapters=model.adapters or None
        )
    vectors = np.frombuffer(found["vectors"], np.float32).reshape(len(inputs), found["width"])
    return json([{"index": at, "embedding": [vector.tolist()]} for at, vector in enumerate(vectors)])


routes = [Route(path, create, methods=["POST"]) for path in ("/embedding", "/embeddings")]
