"""Lists of what is kept, in OpenAI's pages, and other parameters in the query of a URL."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from starlette.requests import Request

from llamina.server.caller import caller
from llamina.server.errors import ApiError
from llamina.server.http import Json, json
from llamina.server.openai.schema import Item, Listed
from llamina.server.store import Page
from llamina.server.store.store import Order

T = TypeVar("T")
MOST = 100  # objects in a page
PAGE = ("after", "before", "limit", "order")


@dataclass(frozen=True)
class Asked:
    """Which page of a list is wanted."""

    after: str | None
    before: str | None
    limit: int
    order: Order
    others: dict[str, str] = field(default_factory=dict)

    def unknown(self) -> ApiError:
        """The error of a list that has not the object after or before which the page is."""
        param = "after" if self.after is not None else "before"
        return ApiError(404, f"there is no {getattr(self, param)!r} in this list", "not_found_error", param=param)


def asked_page(request: Request, default: int = 20, most: int = MOST, others: tuple[str, ...] = ()) -> Asked:
    """The page that a query asks for. Raises ApiError for a parameter that is unknown or out of range."""
    check_query(request, (*PAGE, *others))
    given, limit = request.query_params, whole(request, "limit", default)
    if not 1 <= limit <= most:
        raise ApiError(400, f"limit is {limit}: must be a number from 1 to {most}", param="limit")
    order = given.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ApiError(400, f"order is {order!r}: must be asc or desc", param="order")
    if "after" in given and "before" in given:
        raise ApiError(400, "after and before are both given: give one of them", param="before")
    rest = {name: given[name] for name in others if name in given}
    return Asked(given.get("after"), given.get("before"), limit, cast(Order, order), rest)


async def kept_page(
    request: Request,
    kind: str,
    asked: Asked,
    *,
    parent: str = "",
    status: tuple[str, ...] | None = None,
    row_id: Callable[[str], str] = lambda id: id,
) -> Page:
    """That page of the caller's objects. Raises ApiError if it is after or before an object that is not there."""
    page: Page | None = await request.app.state.server.store.page(
        kind,
        caller(request).id,
        parent=parent,
        status=status,
        after=row_id(asked.after) if asked.after is not None else None,
        before=row_id(asked.before) if asked.before is not None else None,
        limit=asked.limit,
        order=asked.order,
    )
    if page is None:
        raise asked.unknown()
    return page


def cut_page(items: Sequence[T], asked: Asked, id_of: Callable[[T], str]) -> tuple[Sequence[T], bool]:
    """That page of a list that is at hand, the oldest first, and whether there are more. Raises ApiError."""
    ordered = items if asked.order == "asc" else items[::-1]
    ids = [id_of(item) for item in ordered]
    if any(id is not None and id not in ids for id in (asked.after, asked.before)):
        raise asked.unknown()
    if asked.before is not None:
        rest = ordered[: ids.index(asked.before)]
        return rest[-asked.limit :], len(rest) > asked.limit
    rest = ordered[ids.index(asked.after) + 1 :] if asked.after is not None else ordered
    return rest[: asked.limit], len(rest) > asked.limit


def listed(data: Sequence[Item], more: bool) -> Json[Listed[Item]]:
    """A `list` object."""
    first, last = (data[0]["id"], data[-1]["id"]) if data else ("", "")
    return json({"object": "list", "data": list(data), "first_id": first, "last_id": last, "has_more": more})


# ---- parameters of a query -------------------------------------------------------------------------------


def check_query(request: Request, known: tuple[str, ...]) -> None:
    """Raise ApiError for a parameter that there is not."""
    for name in request.query_params:
        if name.removesuffix("[]") not in known:
            message = f"unknown parameter {name!r}: known are {', '.join(known) or 'none'}"
            raise ApiError(400, message, param=name)


def whole(request: Request, name: str, default: int) -> int:
    """A whole number of the query. Raises ApiError."""
    given = request.query_params.get(name, str(default))
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(given) <= 18):
        raise ApiError(400, f"{name} is {given!r}: must be a whole number", param=name)
    return int(given)


def truth(request: Request, name: str) -> bool:
    """A truth value of the query. Raises ApiError."""
    given = request.query_params.get(name, "false").lower()
    if given not in ("true", "false"):
        raise ApiError(400, f"{name} is {given!r}: must be true or false", param=name)
    return given == "true"
