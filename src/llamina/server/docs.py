"""`/openapi.json`, and `/docs`: a page of our own that shows it. Nothing is fetched from elsewhere."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llamina.server.errors import ApiError
from llamina.server.http import json
from llamina.server.openapi import document

PAGES = Path(__file__).parent / "pages"
FILES = {"": "docs.html", "docs.js": "docs.js", "docs.css": "docs.css"}
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


async def openapi(request: Request) -> Response:
    """GET /openapi.json."""
    state = request.app.state
    if not hasattr(state, "openapi"):
        state.openapi = document(request.app.routes)
    return json(state.openapi)


async def page(request: Request) -> Response:
    """GET /docs and its files."""
    name = FILES.get(request.path_params.get("file", ""))
    if name is None:
        raise ApiError(404, f"there is no {request.url.path}", "not_found_error")
    path = PAGES / name
    return Response(path.read_bytes(), headers=HEADERS, media_type=TYPES[path.suffix])


routes = [
    Route("/openapi.json", openapi, methods=["GET"], include_in_schema=False),
    Route("/docs", page, methods=["GET"], include_in_schema=False),
    Route("/docs/{file}", page, methods=["GET"], include_in_schema=False),
]
