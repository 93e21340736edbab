"""The fields that items, their parts and functions may have. Another one is an error, as in OpenAI's API."""

from typing import Any

from llamina.server.errors import ApiError

# What is listed and read by nobody here tells of an item, and asks for nothing.
ANY_ITEM = ("type", "id", "status", "metadata", "created_by")
CALL = ("call_id", "name", "namespace", "caller")
FIELDS = {
    "message": (*ANY_ITEM, "role", "content", "phase", "end_turn"),
    "function_call": (*ANY_ITEM, *CALL, "arguments", "parsed_arguments"),
    "function_call_output": (*ANY_ITEM, *CALL, "output"),
    "reasoning": (*ANY_ITEM, "summary", "content", "encrypted_content"),
    "item_reference": ("type", "id"),
}
PARTS = {
    "input_text": ("type", "text", "prompt_cache_breakpoint"),  # prefixes are cached without it
    "output_text": ("type", "text", "annotations", "logprobs", "parsed"),
    "text": ("type", "text"),
    "summary_text": ("type", "text"),
    "reasoning_text": ("type", "text"),
    "refusal": ("type", "refusal"),
}
FUNCTION = ("type", "name", "description", "parameters", "strict", "defer_loading", "allowed_callers", "output_schema")


def check_known(given: dict[str, Any], known: tuple[str, ...], path: str) -> None:
    """Raise ApiError for a field that there is not: it may ask for something that nobody would do."""
    for name in given:
        if name not in known:
            where, message = f"{path}.{name}", f"unknown parameter {path}.{name}: known are {', '.join(known)}"
            raise ApiError(400, message, param=where, code="unknown_parameter")
