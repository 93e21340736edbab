"""OpenAI's objects, validated strictly by the official client's own models."""

from typing import TypeVar

import openai
from live_server import PATIENCE, Live
from pydantic import BaseModel

Object = TypeVar("Object", bound=BaseModel)


def official_client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)


def strict(found: Object) -> Object:
    """The object, if it is exactly as its model says: the client itself would take anything."""
    assert not found.model_extra, f"{type(found).__name__} has {found.model_extra}"
    raw = found.model_dump(mode="python", exclude_unset=True, warnings="error")
    type(found).model_validate(raw, strict=True)
    for name in found.model_fields_set:
        value = getattr(found, name)
        if isinstance(value, BaseModel):
            strict(value)
        for item in value if isinstance(value, list) else ():
            if isinstance(item, BaseModel):
                strict(item)
    return found
