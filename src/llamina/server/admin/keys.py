"""`/admin/keys`: API keys made at run time. A key is told once, when it is made; what is kept is its hash."""

import time

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.admin.schema import Key, KeyList
from llamina.server.caller import CLIENT_SCOPES
from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.ids import new_id
from llamina.server.openai.schema import Deleted
from llamina.server.protection.keys import KIND, REVOKED, check_scopes, hashed, new_key
from llamina.server.protection.rates import Rates
from llamina.server.store.store import Kept

LONGEST = 10 * 366 * 86400  # seconds that a key may be valid


class KeyRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    scopes: list[str] | None = None  # by default everything but administration
    expires_in: int | None = None  # seconds; by default it does not expire
    rates: Rates | None = None  # by default those of every key


async def create(request: Request) -> Json[Key]:
    """POST /admin/keys: 201 with the key, which nobody can read later."""
    server = request.app.state.server
    body = await read(request, KeyRequest)
    if not 1 <= len(body.name) <= 100:
        raise ApiError(400, "name must have 1 to 100 characters", param="name")
    if body.expires_in is not None and not 1 <= body.expires_in <= LONGEST:
        message = f"expires_in is {body.expires_in}: must be seconds from 1 to {LONGEST}"
        raise ApiError(400, message, param="expires_in")
    scopes = check_scopes(CLIENT_SCOPES if body.scopes is None else body.scopes)
    key = new_key()
    kept = {
        "name": body.name,
        "sha256": hashed(key),
        "scopes": sorted(scopes),
        "expires": int(time.time()) + body.expires_in if body.expires_in is not None else None,
        "rates": msgspec.structs.asdict(body.rates) if body.rates is not None else None,
    }
    made = await server.store.insert(KIND, new_id("key_"), kept, status="active")
    await server.keys.refresh(server.store, now=True)
    return json({**described(made), "key": key}, 201)


async def list_keys(request: Request) -> Json[KeyList]:
    """GET /admin/keys: those that were made here; the configuration's are not listed."""
    kept = await request.app.state.server.store.all(KIND, status=("active",))
    return json({"object": "list", "data": [described(one) for one in kept]})


async def revoke(request: Request) -> Json[Deleted]:
    """DELETE /admin/keys/{id}: it is refused from now on. Its hash is forgotten; what it made stays."""
    server, id = request.app.state.server, request.path_params["id"]
    if not await server.store.change(KIND, id, body={}, status=REVOKED, if_status=("active",)):
        raise ApiError(404, f"there is no key {id!r}", "not_found_error")
    await server.keys.refresh(server.store, now=True)
    return json({"id": id, "object": "key", "deleted": True})


def described(kept: Kept) -> Key:
    return {
        "id": kept.id,
        "object": "key",
        "name": kept.body["name"],
        "scopes": kept.body["scopes"],
        "created": kept.created,
        "expires": kept.body["expires"],
        "rates": kept.body["rates"],
    }


routes = [
    Route("/admin/keys", create, methods=["POST"]),
    Route("/admin/keys", list_keys, methods=["GET"]),
    Route("/admin/keys/{id}", revoke, methods=["DELETE"]),
]
