"""`/api/generate`: a prompt in, its continuation or the answer to it out."""

from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.http import Json, read
from llamina.server.model import Chunk, Model
from llamina.server.model.client import ChunkStream
from llamina.server.models import Entry
from llamina.server.ollama.answer import Answer, Line, Lines, only_load, respond
from llamina.server.ollama.conversation import check_no_images, conversation, with_images
from llamina.server.ollama.modelfile import Modelfile, modelfile_of
from llamina.server.ollama.names import find
from llamina.server.ollama.schema import Call, GenerateContent, GenerateLine
from llamina.server.ollama.shared_fields import GenerationRequest
from llamina.server.ollama.template import PLAIN, Template


class GenerateRequest(GenerationRequest, kw_only=True, forbid_unknown_fields=True):
    """Ollama's request."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None
    images: list[Any] | None = None
    width: int | None = None
    height: int | None = None
    steps: int | None = None

    def begin(self, entry: Entry, model: Model, limits: Limits) -> ChunkStream:
        """Put the prompt to the model: as it is or before a suffix, in a template, or as the user's message.

        Raises ApiError.
        """
        self._check()
        modelfile = modelfile_of(entry)
        options = self.engine_options(entry, model, modelfile, limits)
        if self.raw or self.suffix:
            return model.generate(prompt=self.prompt or "", options=options, suffix=self.suffix or "")
        messages = self._messages(modelfile, limits)
        source = self.template or modelfile.template or ("" if model.info.has_template else PLAIN)
        if not source:
            options |= self.template_options(model)
            return model.generate(messages=messages, prompt=self.context or None, options=options, tell_prompt=True)
        if self.think or self.context:
            raise ApiError(400, "think and context need the model's chat template, and another is given or none")
        check_no_images(messages)
        return model.generate(prompt=Template(source).prompt(messages), options=options, tell_prompt=True)

    def _messages(self, modelfile: Modelfile, limits: Limits) -> list[dict[str, Any]]:
        system = self.system or modelfile.system
        messages = [{"role": "system", "content": system}] if system else []
        if not self.context:
            messages += conversation(modelfile.messages, limits.messages)
        return [*messages, {"role": "user", "content": with_images(self.images, self.prompt or "", "images")}]

    def _check(self) -> None:
        if self.raw and (self.template or self.system or self.context):
            raise ApiError(400, "raw is given with template, system or context: a raw prompt is used as it is")
        if self.suffix and (self.template or self.system or self.context or self.think):
            message = "suffix is given with template, system, context or think: what is filled in is no conversation"
            raise ApiError(400, message, param="suffix")
        if self.images and (self.raw or self.suffix):
            raise ApiError(400, "images are given with raw or suffix: they are part of a conversation", param="images")
        for name in ("width", "height", "steps"):
            if getattr(self, name) is not None:
                raise ApiError(400, f"{name} is given: this server makes no images", param=name)


class GenerateAnswer(Answer):
    """Lines with a piece of the response; the last has the tokens of all as a `context` for the next request."""

    def content(self, text: str, thinking: str, calls: list[Call]) -> GenerateContent:
        return {"response": text, "thinking": thinking} if thinking else {"response": text}

    def ending(self, last: Chunk, generated: list[int]) -> Line:
        return {"context": [*last.prompt, *generated]} if last.prompt is not None else {}


async def generate(request: Request) -> Json[GenerateLine] | Lines[GenerateLine]:
    """POST /api/generate."""
    server = request.app.state.server
    body = await read(request, GenerateRequest)
    entry, answer = find(server.models, body.model), GenerateAnswer(body.model)
    if not body.prompt:
        return await only_load(request, entry, answer, body.keeps)
    limits = server.config.limits
    return await respond(
        request, entry, answer, lambda entry, model: body.begin(entry, model, limits), body.streams, body.keeps
    )


routes = [Route("/api/generate", generate, methods=["POST"])]
