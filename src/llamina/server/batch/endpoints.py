"""The endpoints that batches can ask: the code of the live ones."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from llamina.server.openai import chat, completions, embeddings
from llamina.server.openai.responses import run as responses
from llamina.server.openai.responses.request import ResponseRequest
from llamina.server.openai.responses.schema import ResponseObject


@dataclass(frozen=True)
class From:
    """Whose request it is, and what tells it from all others, also when it is asked again."""

    owner: str
    key: str


Answer = Callable[..., Awaitable[Any]]


class Endpoint(NamedTuple):
    """The struct of a request, and `answer(server, request, origin, **defaults)`: the object of the whole answer."""

    request: type[Any]
    answer: Answer


def _keeps_nothing(answer: Answer) -> Answer:
    """For an endpoint that does not ask whose request it is."""
    return lambda server, request, origin, **defaults: answer(server, request, **defaults)


async def _response(server: Any, request: ResponseRequest, origin: From, **defaults: Any) -> ResponseObject:
    return await responses.answer(server, origin.owner, request, origin.key, **defaults)


ENDPOINTS = {
    "/v1/chat/completions": Endpoint(chat.ChatRequest, _keeps_nothing(chat.answer)),
    "/v1/completions": Endpoint(completions.CompletionRequest, _keeps_nothing(completions.answer)),
    "/v1/embeddings": Endpoint(embeddings.EmbeddingsRequest, _keeps_nothing(embeddings.answer)),
    "/v1/responses": Endpoint(ResponseRequest, _response),
}
