"""`/api/chat`: a conversation in, an answer or lines of it out."""

from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.http import Json, read
from llamina.server.model import Model
from llamina.server.model.client import ChunkStream
from llamina.server.models import Entry
from llamina.server.ollama.answer import Answer, Lines, only_load, respond
from llamina.server.ollama.conversation import Message, check_no_images, conversation
from llamina.server.ollama.modelfile import modelfile_of
from llamina.server.ollama.names import find
from llamina.server.ollama.schema import AnswerMessage, Call, ChatContent, ChatLine
from llamina.server.ollama.shared_fields import GenerationRequest
from llamina.server.ollama.template import Template
from llamina.server.tools import check_count, read_schema


class ChatRequest(GenerationRequest, kw_only=True, forbid_unknown_fields=True):
    """Ollama's request; `tool_choice` and `parallel_tool_calls` are extensions, as in OpenAI's API."""

    messages: list[Message] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None

    def begin(self, entry: Entry, model: Model, limits: Limits) -> ChunkStream:
        """Put the conversation to the model. Raises ApiError."""
        modelfile = modelfile_of(entry)
        options = self.engine_options(entry, model, modelfile, limits)
        given = [*modelfile.messages, *(self.messages or ())]
        messages = conversation(given, limits.messages)
        if modelfile.system and (not self.messages or self.messages[0].role.lower() != "system"):
            messages = [{"role": "system", "content": modelfile.system}, *messages]
        if modelfile.template:
            if self.tools or self.think:
                raise ApiError(400, f"the template of {entry.id!r} knows neither tools nor thinking", param="tools")
            check_no_images(messages)
            return model.generate(prompt=Template(modelfile.template).prompt(messages), options=options)
        options |= self.template_options(model) | self._tool_options(limits)
        return model.generate(messages=messages, options=options)

    def _tool_options(self, limits: Limits) -> dict[str, Any]:
        check_count(self.tools or [], limits)
        given = {
            "tools": [_tool(tool, f"tools[{i}].function.parameters") for i, tool in enumerate(self.tools or ())]
            or None,
            "tool_choice": self.tool_choice,
            "parallel_tool_calls": self.parallel_tool_calls,
        }
        return {name: value for name, value in given.items() if value is not None}


def _tool(tool: dict[str, Any], param: str) -> dict[str, Any]:
    """A tool with a schema that can be read; what is no tool is left to the engine to refuse."""
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("parameters"), dict):
        return tool
    return tool | {"function": function | {"parameters": read_schema(function["parameters"], param)}}


class ChatAnswer(Answer):
    """Lines with a message."""

    def content(self, text: str, thinking: str, calls: list[Call]) -> ChatContent:
        message: AnswerMessage = {"role": "assistant", "content": text}
        if thinking:
            message["thinking"] = thinking
        if calls:
            message["tool_calls"] = calls
        return {"message": message}


async def chat(request: Request) -> Json[ChatLine] | Lines[ChatLine]:
    """POST /api/chat."""
    server = request.app.state.server
    body = await read(request, ChatRequest)
    entry, answer = find(server.models, body.model), ChatAnswer(body.model)
    if not body.messages:
        return await only_load(request, entry, answer, body.keeps)
    limits = server.config.limits
    return await respond(
        request, entry, answer, lambda entry, model: body.begin(entry, model, limits), body.streams, body.keeps
    )


routes = [Route("/api/chat", chat, methods=["POST"])]
