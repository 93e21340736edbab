"""The endpoints that batches can ask: the code of the live ones."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from llamina.server.openai import chat, completions, embeddings


class Endpoint(NamedTuple):
    """The struct of a request, and `answer(server, request, **defaults)`, which returns the whole answer's object."""

    request: type[Any]
    answer: Callable[..., Awaitable[dict[str, Any]]]


ENDPOINTS = {
    "/v1/chat/completions": Endpoint(chat.ChatRequest, chat.answer),
    "/v1/completions": Endpoint(completions.CompletionRequest, completions.answer),
    "/v1/embeddings": Endpoint(embeddings.EmbeddingsRequest, embeddings.answer),
}
