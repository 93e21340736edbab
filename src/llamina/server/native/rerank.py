"""`/v1/rerank`: documents by how well they answer a query, in the shape of Jina, Cohere, llama.cpp and vLLM."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.ids import new_id
from llamina.server.native.schema import Ranked, Rerank
from llamina.server.openai.schema import PromptUsage


class RerankRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Jina's and Cohere's fields; documents are texts, or objects with a `text`."""

    query: str
    documents: list[str | dict[str, Any]]
    model: str = ""
    top_n: int | None = None
    return_documents: bool = False
    max_chunks_per_doc: int | None = None  # Cohere's: documents are never cut into chunks here
    user: str | None = None

    def texts(self, most: int) -> list[str]:
        """The documents' texts. Raises ApiError for what is none, or too many."""
        if not 1 <= len(self.documents) <= most:
            message = f"there are {len(self.documents)} documents: 1 to {most} are allowed"
            raise ApiError(400, message, param="documents")
        texts = [document if isinstance(document, str) else document.get("text") for document in self.documents]
        if not all(isinstance(text, str) for text in texts):
            raise ApiError(400, "a document must be a text, or an object with a text", param="documents")
        if self.max_chunks_per_doc not in (None, 1):
            raise ApiError(400, "documents are not cut into chunks here: leave it out", param="max_chunks_per_doc")
        if self.top_n is not None and self.top_n < 1:
            raise ApiError(400, f"top_n is {self.top_n}: must be 1 or more", param="top_n")
        return texts  # type: ignore[return-value]


async def create(request: Request) -> Json[Rerank]:
    """POST /v1/rerank. The scores are the model's own, as llama.cpp gives them."""
    server = request.app.state.server
    body = await read(request, RerankRequest)
    texts = body.texts(server.config.limits.inputs)
    async with server.models.use(body.model) as (entry, model):
        found = await model.call("rerank", query=body.query, documents=texts, adapters=model.adapters or None)
    scores = found["scores"]
    order = sorted(range(len(scores)), key=lambda at: -scores[at])[: body.top_n]
    results: list[Ranked] = [{"index": at, "relevance_score": scores[at]} for at in order]
    if body.return_documents:
        for one in results:
            one["document"] = {"text": texts[one["index"]]}
    tokens = found["tokens"]
    usage: PromptUsage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json({"id": new_id("rerank-"), "object": "list", "model": entry.id, "results": results, "usage": usage})


PATHS = ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking")
routes = [Route(path, create, methods=["POST"]) for path in PATHS]
