"""OpenAI's objects, validated strictly by the official client's own models: the client itself would take anything."""

from typing import Any, TypeVar

import openai
from live_server import PATIENCE, Live
from openai.types import Completion
from pydantic import BaseModel

Object = TypeVar("Object", bound=BaseModel)
# What we tell beside OpenAI's fields: llama.cpp's timings and facts of a model, DeepSeek's reasoning.
EXTENSIONS = {
    "ChatCompletion": {"timings"},
    "ChatCompletionChunk": {"timings"},
    "ChatCompletionMessage": {"reasoning_content"},
    "ChoiceDelta": {"reasoning_content"},
    "Completion": {"timings"},
    "Model": {"architecture", "meta"},
}


def official_client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)


def strict(found: Object) -> Object:
    """The object, if every field is there, of the right type, and none is unknown."""
    type(found).model_validate_json(found.model_dump_json(exclude_unset=True, warnings=False), strict=True)
    _known(found, type(found).__name__)
    return found


def _known(value: Any, path: str) -> None:
    if isinstance(value, BaseModel):
        unknown = set(value.model_extra or ()) - EXTENSIONS.get(type(value).__name__, set())
        assert not unknown, f"{path} has unknown fields: {unknown}"
        for name in value.model_fields_set - set(value.model_extra or ()):
            _known(getattr(value, name), f"{path}.{name}")
    for index, item in enumerate(value if isinstance(value, list) else ()):
        _known(item, f"{path}[{index}]")


def strict_part(part: Completion) -> Completion:
    """A part of a streamed completion: its finish reason is null until the last, for which the model has no place."""
    ends = [choice.model_copy(update={"finish_reason": choice.finish_reason or "stop"}) for choice in part.choices]
    strict(part.model_copy(update={"choices": ends}))
    return part
