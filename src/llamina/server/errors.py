"""Errors as HTTP answers, each API in its own shape. Bad input is a 4xx that names the field, never a 5xx."""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NotRequired, TypedDict

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from llamina.errors import LlaminaError, RequestError
from llamina.server.mistake import where
from llamina.server.model import ErrorInfo, ModelError
from llamina.server.record import current

log = logging.getLogger("llamina.server")
RETRY_SECONDS = 2  # that a client should wait before it asks a full queue again


class ApiError(Exception):
    """An answer that is an error; `kind` is OpenAI's name for it, from which other APIs take theirs."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind
        self.param, self.code, self.headers = param, code, headers or {}


BAD_INPUT = {
    "RequestError",
    "InvalidSampling",
    "InvalidGrammar",
    "InvalidPicture",
    "InvalidSound",
    "TemplateError",
    "UnsupportedModel",
    "MissingTensor",
    "SnapshotError",
}


def api_error(error: Exception) -> ApiError:
    """What went wrong, as an answer. What is nobody's input is a 500 and goes to the log with its traceback."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ModelError):
        return _of_model(error.info)
    if isinstance(error, msgspec.ValidationError):
        return _of_validation(str(error))
    if isinstance(error, msgspec.DecodeError):
        return ApiError(400, f"the body is not valid JSON: {error}")
    if isinstance(error, LlaminaError):
        return _of_model(ErrorInfo.of(error))
    if isinstance(error, ClientDisconnect):
        return ApiError(400, "the client went away before its request was whole")
    record = current()
    id = record.id if record is not None else "none"
    log.error("a mistake of ours in request %s: %s", id, where(error))
    return ApiError(500, f"the server made a mistake: its log has the details of request {id}", "server_error")


def _of_model(info: ErrorInfo) -> ApiError:
    retry = {"Retry-After": str(RETRY_SECONDS)}
    match info.kind:
        case "ContextTooLong":
            return ApiError(400, info.message, param=info.param, code="context_length_exceeded")
        case "ModelNotFound":
            return ApiError(404, info.message, "not_found_error", param="model", code="model_not_found")
        case "QueueFull":
            return ApiError(503, info.message, "service_unavailable", code="queue_full", headers=retry)
        case "CapacityError":
            return ApiError(400, info.message, param=info.param, code="capacity_exceeded")
        case "Timeout":
            return ApiError(504, info.message, "timeout_error", code="timeout")
        case "ModelLost":
            return ApiError(503, info.message, "service_unavailable", code="model_lost", headers=retry)
        case "ShuttingDown":
            return ApiError(503, info.message, "service_unavailable", code="shutting_down", headers=retry)
        case kind if kind in BAD_INPUT:
            return ApiError(400, info.message, param=info.param)
        case "Internal":
            log.error("a model answered with %s", info.message)
            return ApiError(500, "the model's process made a mistake: the log has the details", "server_error")
    return ApiError(400, info.message, param=info.param)


def _of_validation(message: str) -> ApiError:
    """msgspec says where: `Expected `int`, got `str` - at `$.messages[0].n``."""
    where = re.search(r"at `\$\.?(?:key in )?([^`]*)`", message)
    unknown = re.search(r"unknown field `([^`]+)`", message)
    missing = re.search(r"missing required field `([^`]+)`", message)
    path = where[1] if where else ""
    field = (unknown or missing or [None, None])[1]
    param = ".".join(part for part in (path, field) if part) or None
    code = "unknown_parameter" if unknown else "missing_required_parameter" if missing else None
    return ApiError(400, message, param=param, code=code)


# ---- shapes ----------------------------------------------------------------------------------------------

Shape = Callable[[ApiError], Any]


class OpenAIErrorInfo(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(TypedDict):
    error: OpenAIErrorInfo


class AnthropicErrorInfo(TypedDict):
    type: str
    message: str


class AnthropicError(TypedDict):
    type: Literal["error"]
    error: AnthropicErrorInfo
    request_id: NotRequired[str]


class OllamaError(TypedDict):
    error: str


class LlamaErrorInfo(TypedDict):
    code: int
    message: str
    type: str
    param: str | None


class LlamaError(TypedDict):
    error: LlamaErrorInfo


def openai_shape(error: ApiError) -> OpenAIError:
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}


def anthropic_shape(error: ApiError) -> AnthropicError:
    kinds = {  # Anthropic tells of a full server by 529, which clients of other APIs do not know
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        408: "timeout_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
        504: "timeout_error",
    }
    kind = kinds.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def ollama_shape(error: ApiError) -> OllamaError:
    return {"error": error.message}


def llama_shape(error: ApiError) -> LlamaError:
    kinds = {403: "permission_error", 404: "not_found_error", 503: "unavailable_error"}
    kind = (
        "exceed_context_size_error" if error.code == "context_length_exceeded" else kinds.get(error.status, error.kind)
    )
    return {"error": {"code": error.status, "message": error.message, "type": kind, "param": error.param}}


# llama.cpp's own endpoints; those that it shares with OpenAI have OpenAI's shape
LLAMA = re.compile(
    r"/(completions?|embeddings?|infill|tokenize|detokenize|apply-template|props|slots|lora-adapters)(/|$)"
)


def shape_for(path: str) -> Shape:
    """The shape of the API that a path belongs to."""
    if LLAMA.match(path):
        return llama_shape
    if path.startswith("/v1/messages"):
        return anthropic_shape
    return ollama_shape if path.startswith("/api/") else openai_shape


def answer(error: Exception, path: str) -> Response:
    """An error as a response in its API's shape."""
    found = api_error(error)
    body = msgspec.json.encode(shape_for(path)(found))
    return Response(body, found.status, found.headers, "application/json")


async def on_error(request: Request, error: Exception) -> Response:
    """Starlette's handler of exceptions."""
    return answer(error, request.url.path)


Handler = Callable[[Request], Awaitable[Response]]
__all__ = [
    "ApiError",
    "Handler",
    "RequestError",
    "answer",
    "anthropic_shape",
    "api_error",
    "ollama_shape",
    "on_error",
    "openai_shape",
    "shape_for",
]
