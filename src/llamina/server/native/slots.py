"""`/slots`: what each sequence is doing; its KV cache saved to a file, restored, and forgotten."""

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.sampling import Sampling
from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read_bytes
from llamina.server.native.schema import NextToken, Slot, SlotAction
from llamina.server.native.settings import settings, shorter


class SlotRequest(msgspec.Struct, forbid_unknown_fields=True):
    filename: str = ""
    model: str = ""


async def list_slots(request: Request) -> Json[list[Slot]]:
    """GET /slots. With `fail_on_no_slot` the status is 503 if all are busy."""
    async with request.app.state.server.models.use(request.query_params.get("model", "")) as (_, model):
        found = await model.call("slots")
        context = model.info.context
    if "fail_on_no_slot" in request.query_params and all(slot["busy"] for slot in found):
        raise ApiError(503, f"all {len(found)} slots are busy: ask again later", "service_unavailable")
    return json([_described(id, slot, context) for id, slot in enumerate(found)])


def _described(id: int, slot: dict[str, Any], context: int) -> Slot:
    head: Slot = {
        "id": id,
        "n_ctx": context,
        "speculative": slot.get("speculative", False),
        "is_processing": slot["busy"],
    }
    if "task" not in slot:
        return head
    most = slot["max_tokens"]
    said = shorter(settings(Sampling(**slot["sampling"]), slot, stream=False))
    del said["stream"]  # that is between the server and its client
    next_token: NextToken = {
        "has_next_token": slot["busy"],
        "has_new_line": slot["newline"],
        "n_remain": -1 if most is None else most - slot["generated"],
        "n_decoded": slot["generated"],
    }
    return {
        **head,
        "id_task": slot["task"],
        "n_prompt_tokens": slot["prompt_tokens"],
        "n_prompt_tokens_processed": max(0, min(slot["computed"], slot["prompt_tokens"]) - slot["cached_tokens"]),
        "n_prompt_tokens_cache": slot["cached_tokens"],
        "params": said,
        "next_token": [next_token],
    }


async def act(request: Request) -> Json[SlotAction]:
    """POST /slots/{id}?action=save|restore|erase."""
    server = request.app.state.server
    id, action = request.path_params["id"], request.query_params.get("action", "")
    if action not in ("save", "restore", "erase"):
        raise ApiError(400, f"action is {action!r}: must be save, restore or erase", param="action")
    body = msgspec.json.decode(await read_bytes(request) or b"{}", type=SlotRequest)
    async with server.models.use(body.model or request.query_params.get("model", "")) as (_, model):
        if action == "erase":
            return json({"id_slot": id, "n_erased": await model.call("erase_slot", id=id)})
        if not server.config.slots:
            message = "slots cannot be saved: start the server with --slot-save-path, the folder for them"
            raise ApiError(400, message, "not_supported_error")
        begun = time.perf_counter()
        found = await model.call(f"{action}_slot", id=id, folder=server.config.slots, filename=body.filename)
    told: SlotAction = {"id_slot": id, "filename": body.filename}
    tokens, size, milliseconds = found["tokens"], found["bytes"], 1e3 * (time.perf_counter() - begun)
    if action == "save":
        told |= {"n_saved": tokens, "n_written": size, "timings": {"save_ms": milliseconds}}
    else:
        told |= {"n_restored": tokens, "n_read": size, "timings": {"restore_ms": milliseconds}}
    return json(told)


routes = [
    Route("/slots", list_slots, methods=["GET"]),
    Route("/slots/{id:int}", act, methods=["POST"]),
]
