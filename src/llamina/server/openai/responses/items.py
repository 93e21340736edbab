"""Items of a conversation (messages, calls, their outputs, reasoning) as they are kept and given back."""

from collections.abc import Callable
from itertools import count
from typing import Any

from llamina.server.errors import ApiError
from llamina.server.openai.responses.known import FIELDS, PARTS, check_known
from llamina.server.openai.responses.request import LONGEST_KEY

Item = dict[str, Any]
NewId = Callable[[str], str]
PREFIXES = {"message": "msg_", "function_call": "fc_", "function_call_output": "fco_", "reasoning": "rs_"}
ROLES = ("user", "assistant", "system", "developer")
STATUSES = ("in_progress", "completed", "incomplete")
PHASES = ("commentary", "final_answer")
PICTURE = ("type", "image_url", "detail")
SOUND, FORMATS = ("data", "format"), ("wav", "mp3", "flac")  # llama.cpp reads the last, too
DETAILS = ("auto", "low", "high", "original")  # a model's encoder has one way to see
HEX = 24  # digits that a response's id and those of its items have in common


class ItemIds:
    """Ids of a response's items: the response's own digits and a number, so that an item leads to its response."""

    def __init__(self, response: str, first: int = 0) -> None:
        self._digits = response.removeprefix("resp_")
        self._numbers = count(first)

    def __call__(self, prefix: str) -> str:
        return f"{prefix}{self._digits}{next(self._numbers):04x}"


def response_of(item: str) -> str:
    """The id of the response that an item with this id would be of."""
    return "resp_" + item.partition("_")[2][:HEX]


def normalized(item: Item, path: str, new_id: NewId) -> Item | None:
    """An item in the form of the API's own objects; None for a type that means nothing to the model.

    Raises ApiError, which names the field, for an item that is not complete.
    """
    kind = item.get("type", "message" if "role" in item else None)
    if not isinstance(kind, str):
        raise ApiError(400, f"{path} has no type: must be one of {', '.join(PREFIXES)}", param=f"{path}.type")
    if kind not in PREFIXES:
        return None
    check_known(item, FIELDS[kind], path)
    id, status = item.get("id"), item.get("status")
    if id is not None and not (isinstance(id, str) and 0 < len(id) <= LONGEST_KEY and id.isprintable()):
        raise ApiError(400, f"{path}.id must be a text of 1 to {LONGEST_KEY} characters", param=f"{path}.id")
    if status not in (None, *STATUSES):
        message = f"{path}.status is {status!r}: must be one of {', '.join(STATUSES)}"
        raise ApiError(400, message, param=f"{path}.status")
    found = MAKERS[kind](item, path)
    return {"type": kind, "id": id or new_id(PREFIXES[kind]), "status": status or "completed", **found}


def _message(item: Item, path: str) -> Item:
    role, content, phase = item.get("role"), item.get("content"), item.get("phase")
    if role not in ROLES:
        raise ApiError(400, f"{path}.role is {role!r}: must be one of {', '.join(ROLES)}", param=f"{path}.role")
    found: Item = {"role": role, "content": _parts(content, role, f"{path}.content")}
    if phase not in (None, *PHASES):
        raise ApiError(400, f"{path}.phase is {phase!r}: must be {' or '.join(PHASES)}", param=f"{path}.phase")
    return found if phase is None else found | {"phase": phase}


def _function_call(item: Item, path: str) -> Item:
    return {key: _string(item, key, path) for key in ("call_id", "name", "arguments")} | _origin(item, "namespace")


def _origin(item: Item, *names: str) -> Item:
    """What tells whose call it is; the model is not told, but it is kept."""
    return {name: item[name] for name in (*names, "caller") if item.get(name) is not None}


def _function_call_output(item: Item, path: str) -> Item:
    output = item.get("output")
    if not isinstance(output, str):
        output = _parts(output, "tool", f"{path}.output")
    return {"call_id": _string(item, "call_id", path), "output": output} | _origin(item, "name", "namespace")


def _reasoning(item: Item, path: str) -> Item:
    found: Item = {}
    for key, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        texts = _texts(item.get(key) or [], f"{path}.{key}")
        found[key] = [{"type": kind, "text": text} for text in texts]
    encrypted = item.get("encrypted_content")
    if not isinstance(encrypted, str | None):
        raise ApiError(400, f"{path}.encrypted_content must be a string", param=f"{path}.encrypted_content")
    return found | {"encrypted_content": encrypted}


MAKERS: dict[str, Callable[[Item, str], Item]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "reasoning": _reasoning,
}


def _string(item: Item, key: str, path: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or (key != "arguments" and not value):
        raise ApiError(400, f"{path}.{key} is {value!r}: must be a string", param=f"{path}.{key}")
    return value


def _parts(content: Any, role: str, path: str) -> list[Item]:
    """The texts, pictures and sounds of a message, or of what a function returned."""
    if role == "assistant" or not isinstance(content, list):
        return [_output_text(x) if role == "assistant" else _input_text(x) for x in _texts(content, path)]
    found = []
    for i, part in enumerate(content):
        if isinstance(part, dict) and part.get("type") == "input_image":
            found.append(_input_image(part, f"{path}[{i}]"))
        elif isinstance(part, dict) and part.get("type") == "input_audio":
            found.append(_input_audio(part, f"{path}[{i}]"))
        else:
            found += [_input_text(text) for text in _texts([part], path, i)]
    return found


def _input_image(part: Item, path: str) -> Item:
    check_known(part, PICTURE, path)
    if not isinstance(part.get("image_url"), str):
        raise ApiError(400, f"{path}.image_url must be a string: a data: URL", param=f"{path}.image_url")
    detail = part.get("detail") or "auto"
    if detail not in DETAILS:
        message = f"{path}.detail is {detail!r}: must be one of {', '.join(DETAILS)}"
        raise ApiError(400, message, param=f"{path}.detail")
    return {"type": "input_image", "image_url": part["image_url"], "detail": detail}


def _input_audio(part: Item, path: str) -> Item:
    check_known(part, ("type", "input_audio"), path)
    given, path = part.get("input_audio"), f"{path}.input_audio"
    if not isinstance(given, dict) or not isinstance(given.get("data"), str):
        raise ApiError(400, f"{path}.data must be a string: a sound in base64", param=f"{path}.data")
    check_known(given, SOUND, path)
    if given.get("format") not in FORMATS:
        message = f"{path}.format is {given.get('format')!r}: must be one of {', '.join(FORMATS)}"
        raise ApiError(400, message, param=f"{path}.format")
    return {"type": "input_audio", "input_audio": {"data": given["data"], "format": given["format"]}}


def _texts(content: Any, path: str, first: int = 0) -> list[str]:
    """The texts of a content's parts. Raises ApiError for a part that a text model cannot read."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise ApiError(400, f"{path} must be a text or a list of parts", param=path)
    found = []
    for i, part in enumerate(content, first):
        kind = part.get("type") if isinstance(part, dict) else None
        key = "refusal" if kind == "refusal" else "text"
        if not isinstance(kind, str) or kind not in PARTS:
            read = "text (input_text, output_text), input_image and input_audio are read"
            message = f"{path}[{i}] has the type {kind!r}: {read}"
            raise ApiError(400, message, param=f"{path}[{i}].type")
        check_known(part, PARTS[kind], f"{path}[{i}]")
        if not isinstance(part.get(key), str):
            raise ApiError(400, f"{path}[{i}].{key} must be a string", param=f"{path}[{i}].{key}")
        found.append(part[key])
    return found


def _input_text(text: str) -> Item:
    return {"type": "input_text", "text": text}


def _output_text(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
