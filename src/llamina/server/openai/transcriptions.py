"""`/v1/audio/transcriptions`: a sound in, the text of what is said in it out, as llama-server asks a model for it.

The model is asked in a conversation, so what it answers is what it has learnt to answer there.
"""

from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.errors import ApiError
from llamina.server.http import DONE, PING, Events, Json, bursts, event, events, json
from llamina.server.model import Chunk
from llamina.server.model.frames import Usage
from llamina.server.multipart import receive
from llamina.server.openai.chat import ChatRequest
from llamina.server.openai.schema import TranscriptDelta, TranscriptDone, TranscriptUsage

PROMPT = "Transcribe audio to text"


class TranscriptionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """OpenAI's form, but for its file, with llama-server's `max_tokens`."""

    model: str = ""
    prompt: str = ""
    language: str = ""
    response_format: Literal["json"] = "json"
    stream: bool = False
    temperature: float | None = None
    max_tokens: int | None = None

    def chat(self, sound: bytes) -> ChatRequest:
        """The conversation in which the model is asked."""
        text = (self.prompt or PROMPT) + (f" (language: {self.language})" if self.language else "")
        content = [{"type": "text", "text": text}, {"type": "audio", "audio": sound}]
        messages = [{"role": "user", "content": content}]
        return ChatRequest(messages=messages, temperature=self.temperature, max_tokens=self.max_tokens)


class Received:
    """A file of a form, in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def size(self) -> int:
        return len(self.data)

    async def write(self, data: bytes) -> None:
        self.data += data


class Transcript:
    """What the chunks of an answer come to."""

    def __init__(self) -> None:
        self.text = ""
        self.usage = Usage(0, 0)

    def take(self, chunk: Chunk) -> bytes:
        """The event of what is new, if anything is."""
        self.text += chunk.text
        self.usage = chunk.usage or self.usage
        delta: TranscriptDelta = {"type": "transcript.text.delta", "delta": chunk.text}
        return event(delta) if chunk.text else b""

    def whole(self) -> TranscriptDone:
        prompt, made = self.usage.prompt_tokens, self.usage.completion_tokens
        usage: TranscriptUsage = {
            "type": "tokens",
            "input_tokens": prompt,
            "output_tokens": made,
            "total_tokens": prompt + made,
            "input_tokens_details": {"cached_tokens": self.usage.cached_tokens},
        }
        return {"type": "transcript.text.done", "text": self.text, "usage": usage}


async def create(request: Request) -> Json[TranscriptDone] | Events[TranscriptDelta | TranscriptDone]:
    """POST /v1/audio/transcriptions, a form with the sound as its field file."""
    server, file = request.app.state.server, Received()
    form = await receive(request, file, server.config.limits.body_bytes)
    if form.filename is None:
        raise ApiError(400, "the form has no file: give the sound as the field file", param="file")
    body = msgspec.convert(form.fields, TranscriptionRequest, strict=False)
    asked, made = body.chat(bytes(file.data)), Transcript()
    async with server.models.use(body.model) as (_, model):
        stream = model.generate(messages=asked.messages, options=asked.chat_options(server.config.limits))
        if not body.stream:
            async with stream:
                async for chunk in stream:
                    made.take(chunk)
            return json(made.whole())
        first = await stream.__anext__()  # what is wrong with the request is an answer of its own, not an event
    return events(request, _events(server, body, made, first, stream), owns=[stream])


async def _events(
    server: Any, body: TranscriptionRequest, made: Transcript, first: Chunk, stream: Any
) -> AsyncIterator[bytes]:
    async with server.models.use(body.model), stream:
        yield made.take(first)
        async for chunks in bursts(stream):
            yield b"".join(made.take(chunk) for chunk in chunks) if chunks else PING
        yield event(made.whole())
        yield DONE


routes = [Route("/v1/audio/transcriptions", create, methods=["POST"])]
