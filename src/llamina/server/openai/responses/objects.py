"""The `response` object."""

import time
from typing import Any

from llamina.sampling import Sampling
from llamina.server.errors import ApiError
from llamina.server.model.frames import Usage
from llamina.server.openai.responses.request import Reasoning, ResponseRequest, TextConfig, TextFormat
from llamina.server.openai.responses.schema import (
    FormatOf,
    ResponseError,
    ResponseObject,
    ResponseUsage,
    SamplingOf,
    TextOf,
)
from llamina.server.openai.responses.tools import Offer

DEFAULTS = Sampling()


def new_response(id: str, model: str, body: ResponseRequest, tools: Offer) -> ResponseObject:
    """A response that nothing is known of yet but what was asked."""
    conversation = body.conversation_id
    thinks = body.reasoning or Reasoning()
    return {
        "id": id,
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "queued" if body.background else "in_progress",
        "background": bool(body.background),
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "model": model,
        "output": [],
        "parallel_tool_calls": body.calls_in_parallel,
        "previous_response_id": body.previous_response_id,
        "conversation": {"id": conversation} if conversation is not None else None,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": thinks.effort, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.keeps,
        "text": _text(body.text or TextConfig()),
        "tool_choice": body.tool_choice if body.tool_choice is not None else "auto",
        "tools": tools.shown,
        "top_logprobs": body.top_logprobs or 0,
        "truncation": body.truncation or "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
        **sampling(body, {}),
    }


def sampling(body: ResponseRequest, defaults: dict[str, Any]) -> SamplingOf:
    """The parameters that a response names: as asked for, or the model's defaults."""

    def value(name: str) -> float:
        given = getattr(body, name)
        return float(given if given is not None else defaults.get(name, getattr(DEFAULTS, name)))

    return {
        "temperature": value("temperature"),
        "top_p": value("top_p"),
        "presence_penalty": value("presence_penalty"),
        "frequency_penalty": value("frequency_penalty"),
    }


def _text(text: TextConfig) -> TextOf:
    format = text.format or TextFormat()
    shown: FormatOf = {"type": format.type}
    if format.type == "json_schema":
        shown |= {
            "name": format.name,
            "description": format.description,
            "schema": format.schema,
            "strict": format.strict is not False,
        }
    return {"format": shown, "verbosity": text.verbosity or "medium"}


def usage(used: Usage, reasoning_tokens: int) -> ResponseUsage:
    return {
        "input_tokens": used.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": used.cached_tokens,
            "cache_write_tokens": used.prompt_tokens - used.cached_tokens,
        },
        "output_tokens": used.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": used.prompt_tokens + used.completion_tokens,
    }


def response_error(error: ApiError) -> ResponseError:
    """Why a response failed, under the codes that a response may have."""
    if error.status == 429:
        return {"code": "rate_limit_exceeded", "message": error.message}
    return {"code": "invalid_prompt" if error.status < 500 else "server_error", "message": error.message}
