"""`/` and `/static/…`: the page's files, read once, with the headers that keep a browser to them."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llamina.server.errors import ApiError

TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)


@dataclass(frozen=True)
class Asset:
    """A file as it is sent. `etag` changes with its contents."""

    body: bytes
    media_type: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """Every file of the page by its path. A path that is not a key is not served, whatever it names on the disk."""
    return dict(_below(files(__package__) / "static", ""))


def _below(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for item in folder.iterdir():
        if item.is_dir():
            found += _below(item, f"{prefix}{item.name}/")
        elif media_type := TYPES.get(item.name.rpartition(".")[2]):
            body = item.read_bytes()
            found.append((prefix + item.name, Asset(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')))
    return found


async def index(request: Request) -> Response:
    """GET /."""
    return answer(request, "index.html")


async def static(request: Request) -> Response:
    """GET /static/{path}. Raises ApiError for a path that is no file of the page."""
    return answer(request, request.path_params["path"])


def answer(request: Request, path: str) -> Response:
    """A file of the page, or that the client has it already. Raises ApiError for a path that is none."""
    asset = assets().get(path)
    if asset is None:
        raise ApiError(404, f"the page has no file {path!r}", "not_found_error")
    headers = {
        "ETag": asset.etag,
        "Cache-Control": "no-cache",  # kept, and asked for again by its ETag: a new version is seen at once
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
    }
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if asset.etag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers=headers, media_type=asset.media_type)


routes = [
    Route("/", index, methods=["GET"], include_in_schema=False),
    Route("/static/{path:path}", static, methods=["GET"], include_in_schema=False),
]
