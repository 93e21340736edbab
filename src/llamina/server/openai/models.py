"""`/v1/models`."""

from starlette.requests import Request
from starlette.routing import Route

from llamina.server.http import Json, json
from llamina.server.models import Entry
from llamina.server.openai.schema import Model, ModelList, ModelMeta


async def list_models(request: Request) -> Json[ModelList]:
    """GET /v1/models."""
    entries = request.app.state.server.models.entries.values()
    return json({"object": "list", "data": [described(entry) for entry in entries]})


async def get_model(request: Request) -> Json[Model]:
    """GET /v1/models/{id}."""
    return json(described(request.app.state.server.models.find(request.path_params["id"])))


def described(entry: Entry) -> Model:
    meta: ModelMeta = {"status": entry.status, "aliases": entry.profile.aliases}
    model: Model = {"id": entry.id, "object": "model", "created": entry.created, "owned_by": "llamina", "meta": meta}
    if entry.progress is not None:
        meta["progress"] = {"stage": entry.progress.stage, "done": entry.progress.done, "total": entry.progress.total}
    if entry.error:
        meta["error"] = entry.error
    if entry.model is not None:
        info = entry.model.info
        meta |= {"n_ctx": info.context, "n_vocab": info.vocab, "n_params": info.parameters, "size": info.weight_bytes}
        trained = info.metadata.get(f"{info.architecture}.context_length", info.context)
        meta |= {"n_ctx_train": trained, "n_embd": info.embedding_width}
        meta |= {"memory": entry.memory, "requests": entry.users, "idle_seconds_left": entry.idle_seconds_left}
        meta["device"] = info.device
        model["architecture"] = {"input_modalities": ["text"], "output_modalities": ["text"]}
        if info.sees:
            model["architecture"]["input_modalities"].append("image")
        if info.hears:
            model["architecture"]["input_modalities"].append("audio")
    return model


routes = [
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{id:path}", get_model, methods=["GET"]),
]
