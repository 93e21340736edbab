"""Lists of what is kept, in OpenAI's pages."""

from dataclasses import dataclass, field
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from llamina.server.errors import ApiError
from llamina.server.http import json
from llamina.server.store import Page
from llamina.server.store.store import Order


@dataclass(frozen=True)
class Query:
    """Which page of a list is wanted."""

    after: str | None
    limit: int
    order: Order = "desc"
    others: dict[str, str] = field(default_factory=dict)


def query(request: Request, default: int, most: int, others: tuple[str, ...] = ()) -> Query:
    """What the query string asks for. Raises ApiError for a parameter that is unknown or out of range."""
    given = dict(request.query_params)
    known = ("after", "limit", "order", *others)
    for name in given:
        if name not in known:
            raise ApiError(400, f"unknown parameter {name!r}: must be one of {', '.join(known)}", param=name)
    limit = given.get("limit", str(default))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= most):
        raise ApiError(400, f"limit is {limit!r}: must be a number from 1 to {most}", param="limit")
    order = given.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ApiError(400, f"order is {order!r}: must be asc or desc", param="order")
    rest = {name: given[name] for name in others if name in given}
    return Query(given.get("after"), int(limit), cast(Order, order), rest)


def found(page: Page | None, asked: Query) -> Page:
    """The page. Raises ApiError if `after` names nothing."""
    if page is None:
        raise ApiError(400, f"after is {asked.after!r}: must be the id of an object of this list", param="after")
    return page


def listed(data: list[dict[str, Any]], more: bool) -> Response:
    """A `list` object."""
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return json({"object": "list", "data": data, **ends, "has_more": more})
