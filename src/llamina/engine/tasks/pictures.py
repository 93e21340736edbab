"""Pictures in a conversation: parts of messages that are marks in the template's text, and rows in the prompt."""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from llamina.engine.embedded import Embedded, Prompt, join
from llamina.errors import InvalidPicture, RequestError, TemplateError

if TYPE_CHECKING:
    from llamina.engine.engine import Engine
    from llamina.tokenizer import Tokenizer
    from llamina.vision import EncodedPicture, Rows

TEXTS = ("text", "input_text", "output_text")
PICTURES = ("image_url", "input_image", "image")
MARK = "<__media__>"  # of a picture, in a prompt that is shown
Part = Mapping[str, Any]


def content_of(content: object) -> str | list[dict[str, Any]] | None:
    """A message's content: text, or parts if there is a picture among them. Raises RequestError for anything else."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise RequestError(f"content is {type(content).__name__}: a text or a list of parts is expected", "messages")
    parts = [_part(part) for part in content]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _part(part: object) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type", "text") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping) and kind in TEXTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if isinstance(part, Mapping) and kind in PICTURES:
        return {"type": "image", "image": _source(part)}
    message = f"a message has a part of type {kind!r}: text, image_url and image are known"
    raise RequestError(message, "messages")


def _source(part: Part) -> Any:
    """What holds a part's picture. A text is a `data:` URL or a web address; a path is not: no client may give one."""
    name = "image" if part["type"] == "image" else "image_url"
    source = part.get(name)
    if isinstance(source, Mapping):
        source = source.get("url")
    if source is None:
        raise RequestError(f"a part of type {part['type']!r} has no {name}", "messages")
    if isinstance(source, str) and not source.startswith(("data:", "http://", "https://")):
        message = f"{name} is {source[:60]!r}, which is no picture: give a data: URL, bytes or a pathlib.Path"
        raise InvalidPicture(message, "messages")
    return source


def marked(messages: Sequence[Part]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages with a mark in the place of each picture, and the pictures' sources by their marks."""
    pictures: dict[str, Any] = {}
    secret = secrets.token_hex(8)  # no text of a client's can be taken for a mark

    def text_of(part: Part) -> str:
        if part["type"] == "text":
            return str(part["text"])
        mark = f"<picture-{secret}-{len(pictures)}>"
        pictures[mark] = part["image"]
        return mark

    said = []
    for message in messages:
        content = message.get("content")
        plain = {"content": "".join(map(text_of, content))} if isinstance(content, list) else {}
        said.append({**message, **plain})
    return said, pictures


def in_parts(messages: Sequence[Part]) -> list[dict[str, Any]]:
    """The messages as templates take them that want lists of parts."""
    return [
        {**message, "content": [{"type": "text", "text": text}]} if isinstance(text := message.get("content"), str)
        else dict(message)
        for message in messages
    ]  # fmt: skip


def rendered(tokenizer: "Tokenizer", messages: Sequence[Part], options: Mapping[str, Any]) -> str:
    """A conversation by the model's chat template, to look at."""
    said, pictures = marked(messages)
    template = tokenizer.chat_template_for(bool(options.get("tools")), options.get("template"))
    return shown(tokenizer.render_chat(in_parts(said) if template.takes_parts else said, **options), pictures)


def written(messages: Sequence[Part]) -> list[dict[str, Any]]:
    """The messages as JSON can hold them: pictures as texts."""
    from llamina.vision import data_url

    def texts(part: Part) -> dict[str, Any]:
        kept = part["type"] == "text" or isinstance(part["image"], str)
        return dict(part) if kept else {"type": "image", "image": data_url(part["image"])}

    return [
        {**message, "content": [texts(part) for part in message["content"]]}
        if isinstance(message.get("content"), list)
        else dict(message)
        for message in messages
    ]


def shown(prompt: str, pictures: Mapping[str, Any]) -> str:
    """A rendered conversation to look at."""
    for mark in pictures:
        prompt = prompt.replace(mark, MARK)
    return prompt


def prompt_of(engine: "Engine", text: str, pictures: Mapping[str, Any]) -> list[int]:
    """The tokens of a rendered conversation, with rows where its marks are; BOS in front, if the model wants it.

    Raises TemplateError if the template has left a mark out, InvalidPicture for what is no picture.
    """
    tokens, bos = _with_rows(engine, text, pictures), engine.tokenizer.bos
    wanted = engine.tokenizer.add_bos and bos is not None and tokens[:1] != [bos]
    return join([bos], tokens) if wanted and bos is not None else tokens


def shown_prompt(engine: "Engine", content: object, add_special: bool, parse_special: bool) -> Prompt:
    """Text and pictures in order, without a chat template; with `add_special` as the model begins and ends texts.

    Raises RequestError for parts that are neither, or pictures for a model that reads text only.
    """
    tokenizer, parts = engine.tokenizer, content_of(content) or ""
    first = add_special and tokenizer.add_bos and tokenizer.bos is not None
    found: list[int | Embedded] = [tokenizer.special["bos"]] if first else []
    for part in [{"type": "text", "text": parts}] if isinstance(parts, str) else parts:
        if part["type"] == "text":
            found += engine.encode(part["text"], add_special=False, parse_special=parse_special)
        else:
            found += _rows_of(engine, encode(engine, part["image"]))
    return Prompt([*found, *([tokenizer.special["eos"]] if add_special and tokenizer.add_eos else [])])


def _with_rows(engine: "Engine", text: str, pictures: Mapping[str, Any]) -> list[int]:
    if not pictures:
        return engine.encode(text, add_special=False)
    if missing := [mark for mark in pictures if text.count(mark) != 1]:
        raise TemplateError(f"the chat template writes {len(missing)} pictures not once: it is for text", "messages")
    encoded = {mark: encode(engine, source) for mark, source in pictures.items()}
    parts: list[int | Embedded] = []
    for piece in re.split("(" + "|".join(map(re.escape, pictures)) + ")", text):
        parts += _rows_of(engine, encoded[piece]) if piece in encoded else engine.encode(piece, add_special=False)
    return Prompt(parts)


def encode(engine: "Engine", source: Any) -> "EncodedPicture":
    """What stands for a picture in the prompt, from whatever `vision.read_picture` reads.

    Web addresses are fetched from hosts that the engine was told of. Raises InvalidPicture for others.
    """
    encoder, hosts = engine.runner.pictures.ready(), engine.runner.pictures.hosts
    from llamina.vision import read_picture

    if isinstance(source, str) and source.startswith("http"):
        from llamina.vision.fetch import fetch, host_of

        if (host := host_of(source)) not in hosts:
            message = f"pictures of {host!r} are not fetched: give a data: URL, or load the model with picture_hosts"
            raise InvalidPicture(message, "messages")
        source = fetch(source)
    return encoder.encode(read_picture(source))


def _rows_of(engine: "Engine", picture: "EncodedPicture") -> list[int | Embedded]:
    found: list[int | Embedded] = []
    for i, part in enumerate(picture.parts):
        if isinstance(part, str):
            found += engine.encode(part, add_special=False)
        else:
            found.append(_embedded(engine, part, f"{picture.key}-{i}"))
    return found


def _embedded(engine: "Engine", rows: "Rows", key: str) -> Embedded:
    """A tile's rows. M-RoPE counts them in a grid, all at one time."""
    encoder = engine.runner.pictures.ready().encoder
    if not encoder.grid_positions or not engine.runner.model.config.rope_sections:
        return Embedded(rows.values, both_ways=encoder.both_ways, key=key)
    columns, lines = rows.grid
    y, x = np.divmod(np.arange(columns * lines, dtype=np.int32), columns)
    places = np.stack([np.zeros_like(y), y, x], 1)
    return Embedded(rows.values, places, max(columns, lines), both_ways=encoder.both_ways, key=key)
