"""Lists in pages, and other parameters in the query of a URL."""

from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request

from llamina.server.errors import ApiError

MOST = 100  # objects in a page


@dataclass(frozen=True)
class Paging:
    after: str | None
    before: str | None
    limit: int
    order: Literal["asc", "desc"]


def check_query(request: Request, known: tuple[str, ...]) -> None:
    """Raise ApiError for a parameter that there is not."""
    for name in request.query_params:
        if name.removesuffix("[]") not in known:
            expected = ", ".join(known) or "none"
            raise ApiError(400, f"unknown parameter {name!r}: known are {expected}", param=name)


def paging(request: Request) -> Paging:
    """The page that a query asks for. Raises ApiError."""
    check_query(request, ("after", "before", "limit", "order", "include"))
    query = request.query_params
    limit = whole(request, "limit", 20)
    if not 1 <= limit <= MOST:
        raise ApiError(400, f"limit is {limit}: must be 1 to {MOST}", param="limit")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ApiError(400, f"order is {order!r}: must be asc or desc", param="order")
    if "after" in query and "before" in query:
        raise ApiError(400, "after and before are both given: give one of them", param="after")
    return Paging(query.get("after"), query.get("before"), limit, order)  # type: ignore[arg-type]


def whole(request: Request, name: str, default: int) -> int:
    """A whole number of the query. Raises ApiError."""
    given = request.query_params.get(name, str(default))
    if not given.removeprefix("-").isascii() or not given.removeprefix("-").isdigit() or len(given) > 18:
        raise ApiError(400, f"{name} is {given!r}: must be a whole number", param=name)
    return int(given)


def truth(request: Request, name: str) -> bool:
    """A truth value of the query. Raises ApiError."""
    given = request.query_params.get(name, "false").lower()
    if given not in ("true", "false"):
        raise ApiError(400, f"{name} is {given!r}: must be true or false", param=name)
    return given == "true"


def listed(items: list[dict[str, Any]], more: bool) -> dict[str, Any]:
    """A list object."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else ("", "")
    return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": more}


def page_of(items: list[dict[str, Any]], asked: Paging) -> dict[str, Any]:
    """A page of items that are all here, the oldest first. Raises ApiError for an item that is not among them."""
    ordered = items if asked.order == "asc" else items[::-1]
    ids = [item["id"] for item in ordered]
    for name in ("after", "before"):
        if (id := getattr(asked, name)) is not None and id not in ids:
            raise no_such_item(id, name)
    if asked.before is not None:
        rest = ordered[: ids.index(asked.before)]
        return listed(rest[-asked.limit :], len(rest) > asked.limit)
    rest = ordered[ids.index(asked.after) + 1 :] if asked.after is not None else ordered
    return listed(rest[: asked.limit], len(rest) > asked.limit)


def no_such_item(id: str, param: str) -> ApiError:
    return ApiError(404, f"there is no {id!r} in this list", "not_found_error", param=param)
