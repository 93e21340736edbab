"""`/infill`: what belongs between a prefix and a suffix, for editors."""

from starlette.requests import Request
from starlette.routing import Route

from llamina.server.http import Events, read
from llamina.server.model import Model
from llamina.server.native.completion import Whole, respond
from llamina.server.native.request import InfillRequest
from llamina.server.native.schema import NativeCompletion


async def create(request: Request) -> Whole | Events[NativeCompletion]:
    """POST /infill."""
    body = await read(request, InfillRequest)
    extra = [{"filename": file.filename, "text": file.text} for file in body.input_extra or ()]

    async def prompts(model: Model) -> list[list[int]]:
        around = {"prefix": body.input_prefix, "suffix": body.input_suffix}
        return [await model.call("infill_prompt", **around, prompt=body.prompt, extra=extra)]

    return await respond(request, body, prompts)


routes = [Route("/infill", create, methods=["POST"])]
