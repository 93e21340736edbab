"""`/metrics`: what the server and its models have counted, for Prometheus."""

import asyncio
from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llamina.engine.metrics import samples
from llamina.server.model import Model, ModelError
from llamina.server.models import Entry, Models

PATIENCE = 2.0  # seconds that a model has to say its numbers; one that does not is left out
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: Request) -> Response:
    """GET /metrics. Every model's numbers have its id as the label `model`."""
    server = request.app.state.server
    texts = await asyncio.gather(*(_text(entry.id, entry.model) for entry in loaded(server.models)))
    lines = [*server.requests.lines(), *_loaded(server.models), *merged(texts)]
    return Response("".join(f"{line}\n" for line in lines), media_type=MEDIA_TYPE)


def loaded(models: Models) -> list[Entry]:
    return [entry for entry in models.entries.values() if entry.model is not None]


def _loaded(models: Models) -> Iterable[str]:
    return samples(
        "model_loaded", "gauge", [({"model": id}, int(e.status == "ready")) for id, e in models.entries.items()]
    )


async def _text(id: str, model: Model | None) -> str:
    assert model is not None
    try:
        async with asyncio.timeout(PATIENCE):
            return str(await model.call("metrics", labels={"model": id}))
    except (TimeoutError, ModelError):
        return ""


def merged(texts: Iterable[str]) -> list[str]:
    """The lines of several models, those of one metric together under one heading."""
    families: dict[str, list[str]] = {}
    for text in texts:
        family: list[str] = []
        for line in text.splitlines():
            if line.startswith("# TYPE"):
                family = families.setdefault(line, [])
            else:
                family.append(line)
    return [line for heading, lines in families.items() for line in (heading, *lines)]


routes = [Route("/metrics", metrics, methods=["GET"])]
