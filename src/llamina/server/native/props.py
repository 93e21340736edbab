"""`/props`: what a client of llama.cpp wants to know of the server before it asks."""

from starlette.requests import Request
from starlette.routing import Route

from llamina import __version__
from llamina.server.http import Json, json
from llamina.server.native.schema import DefaultSettings, Props
from llamina.server.native.settings import sampling_of, settings, shorter


async def props(request: Request) -> Json[Props]:
    """GET /props, of the model that `?model=` names."""
    server = request.app.state.server
    async with server.models.use(request.query_params.get("model", "")) as (entry, model):
        info = model.info
    params = shorter(settings(sampling_of(info.sampling, {}), {}, stream=False))
    defaults: DefaultSettings = {"params": params, "n_ctx": info.context}
    return json(
        {
            "default_generation_settings": defaults,
            "total_slots": info.max_sequences,
            "model_alias": entry.id,
            "model_path": info.path,
            "modalities": {"vision": info.sees, "video": False, "audio": info.hears},
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "chat_template": info.template,
            "bos_token": info.bos,
            "eos_token": info.eos,
            "build_info": f"llamina {__version__}",
            "is_sleeping": False,
        }
    )


routes = [Route("/props", props, methods=["GET"])]
