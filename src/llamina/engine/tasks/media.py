"""Pictures and sounds in a conversation: parts of messages, marks in the template's text, rows in the prompt."""

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from llamina.engine.embedded import Embedded, Prompt, join
from llamina.errors import InvalidPicture, RequestError, TemplateError

if TYPE_CHECKING:
    from llamina.engine.engine import Engine
    from llamina.media import Encoder, Medium, Rows
    from llamina.tokenizer import Tokenizer

TEXTS = ("text", "input_text", "output_text")
PICTURES = ("image_url", "input_image", "image")
SOUNDS = ("input_audio", "audio")
DETAILS = ("auto", "low", "high")  # of OpenAI's `image_url`; an encoder has one way to see
FORMATS = ("wav", "mp3", "flac")  # of OpenAI's `input_audio`; what the data is, they tell themselves
MARK = "<__media__>"  # of a picture or a sound, in a prompt that is shown
Part = Mapping[str, Any]


def content_of(content: object) -> str | list[dict[str, Any]] | None:
    """A message's content: text, or parts if not all are text. Raises RequestError for anything else."""
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
        return {"type": "image", "image": _picture(part)}
    if isinstance(part, Mapping) and kind in SOUNDS:
        return {"type": "audio", "audio": _sound(part)}
    message = f"a message has a part of type {kind!r}: text, image_url, image, input_audio and audio are known"
    raise RequestError(message, "messages")


def _picture(part: Part) -> Any:
    """What holds a part's picture. A text is a `data:` URL or a web address; a path is not: no client may give one."""
    name = "image" if part["type"] == "image" else "image_url"
    source = part.get(name)
    _check_keys(part, "type", name, *(("detail",) if part["type"] == "input_image" else ()))
    _check_detail(part.get("detail"))
    if isinstance(source, Mapping):
        _check_keys(source, "url", "detail", name=name)
        _check_detail(source.get("detail"))
        source = source.get("url")
    if source is None:
        raise RequestError(f"a part of type {part['type']!r} has no {name}", "messages")
    if isinstance(source, str) and not source.startswith(("data:", "http://", "https://")):
        message = f"{name} is {source[:60]!r}, which is no picture: give a data: URL, bytes or a pathlib.Path"
        raise InvalidPicture(message, "messages")
    return source


def _check_keys(part: Part, *known: str, name: str = "") -> None:
    """Raise RequestError for a key that means nothing here."""
    if unknown := [key for key, value in part.items() if key not in known and value is not None]:
        what = name or f"a part of type {part['type']!r}"
        raise RequestError(f"{what} has {unknown[0]!r}: {' and '.join(known)} are known", "messages")


def _check_detail(detail: object) -> None:
    if detail not in (None, *DETAILS):
        raise RequestError(f"detail is {detail!r}: must be one of {', '.join(DETAILS)}", "messages")


def _sound(part: Part) -> Any:
    """What holds a part's sound. A text is base64 or a `data:` URL; a path is not, and a web address is not fetched."""
    source = part.get(part["type"])
    _check_keys(part, "type", part["type"])
    if part["type"] == "input_audio":
        if not isinstance(source, Mapping) or not isinstance(source.get("data"), str):
            raise RequestError("input_audio has no data: it must be base64 of a sound", "messages")
        _check_keys(source, "data", "format", name="input_audio")
        if source.get("format") not in (None, *FORMATS):
            expected = f"must be one of {', '.join(FORMATS)}"
            raise RequestError(f"input_audio.format is {source['format']!r}: {expected}", "messages")
        source = source["data"]
    if source is None:
        raise RequestError(f"a part of type {part['type']!r} has no {part['type']}", "messages")
    return source


def marked(messages: Sequence[Part]) -> tuple[list[dict[str, Any]], dict[str, Part]]:
    """The messages with a mark in the place of each picture and sound, and these parts by their marks."""
    media: dict[str, Part] = {}
    secret = secrets.token_hex(8)  # no text of a client's can be taken for a mark

    def text_of(part: Part) -> str:
        if part["type"] == "text":
            return str(part["text"])
        mark = f"<medium-{secret}-{len(media)}>"
        media[mark] = part
        return mark

    said = []
    for message in messages:
        content = message.get("content")
        plain = {"content": "".join(map(text_of, content))} if isinstance(content, list) else {}
        said.append({**message, **plain})
    return said, media


def in_parts(messages: Sequence[Part]) -> list[dict[str, Any]]:
    """The messages as templates take them that want lists of parts."""
    return [
        {**message, "content": [{"type": "text", "text": text}]} if isinstance(text := message.get("content"), str)
        else dict(message)
        for message in messages
    ]  # fmt: skip


def rendered(tokenizer: "Tokenizer", messages: Sequence[Part], options: Mapping[str, Any]) -> str:
    """A conversation by the model's chat template, to look at."""
    said, media = marked(messages)
    template = tokenizer.chat_template_for(bool(options.get("tools")), options.get("template"))
    return shown(tokenizer.render_chat(in_parts(said) if template.takes_parts else said, **options), media)


def written(messages: Sequence[Part]) -> list[dict[str, Any]]:
    """The messages as JSON can hold them: pictures and sounds as texts."""
    from llamina.sound import as_base64
    from llamina.vision import data_url

    def texts(part: Part) -> dict[str, Any]:
        kind = part["type"]
        if kind == "text" or isinstance(part[kind], str):
            return dict(part)
        return {"type": kind, kind: data_url(part[kind]) if kind == "image" else as_base64(part[kind])}

    return [
        {**message, "content": [texts(part) for part in message["content"]]}
        if isinstance(message.get("content"), list)
        else dict(message)
        for message in messages
    ]


def shown(prompt: str, media: Mapping[str, Part]) -> str:
    """A rendered conversation to look at."""
    for mark in media:
        prompt = prompt.replace(mark, MARK)
    return prompt


def prompt_of(engine: "Engine", text: str, media: Mapping[str, Part]) -> list[int]:
    """The tokens of a rendered conversation, with rows where its marks are; BOS in front, if the model wants it.

    Raises TemplateError if the template has left a mark out, InvalidPicture and InvalidSound for what is none.
    """
    tokens, bos = _with_rows(engine, text, media), engine.tokenizer.bos
    wanted = engine.tokenizer.add_bos and bos is not None and tokens[:1] != [bos]
    return join([bos], tokens) if wanted and bos is not None else tokens


def shown_prompt(engine: "Engine", content: object, add_special: bool, parse_special: bool) -> Prompt:
    """Text, pictures and sounds in order, without a template; with `add_special` as the model begins and ends texts.

    Raises RequestError for parts that are neither, or those that the model has no encoder for.
    """
    tokenizer, parts = engine.tokenizer, content_of(content) or ""
    first = add_special and tokenizer.add_bos and tokenizer.bos is not None
    found: list[int | Embedded] = [tokenizer.special["bos"]] if first else []
    for part in [{"type": "text", "text": parts}] if isinstance(parts, str) else parts:
        if part["type"] == "text":
            found += engine.encode(part["text"], add_special=False, parse_special=parse_special)
        else:
            found += _rows_of(engine, part)
    return Prompt([*found, *([tokenizer.special["eos"]] if add_special and tokenizer.add_eos else [])])


def _with_rows(engine: "Engine", text: str, media: Mapping[str, Part]) -> list[int]:
    if not media:
        return engine.encode(text, add_special=False)
    if missing := [mark for mark in media if text.count(mark) != 1]:
        message = f"the chat template writes {len(missing)} pictures or sounds not once: it is for text"
        raise TemplateError(message, "messages")
    rows = {mark: _rows_of(engine, part) for mark, part in media.items()}
    parts: list[int | Embedded] = []
    for piece in re.split("(" + "|".join(map(re.escape, media)) + ")", text):
        parts += rows[piece] if piece in rows else engine.encode(piece, add_special=False)
    return Prompt(parts)


def _rows_of(engine: "Engine", part: Part) -> list[int | Embedded]:
    """What stands for a part in the prompt: tokens, and rows of the model's encoder."""
    kind = part["type"]
    encoders = engine.runner.pictures if kind == "image" else engine.runner.sounds
    runner = encoders.ready()
    medium = _picture_at(part["image"], encoders.hosts) if kind == "image" else _sound_at(part["audio"])
    found: list[int | Embedded] = []
    encoded = runner.encode(medium, engine.context)
    for i, piece in enumerate(encoded.parts):
        if isinstance(piece, str):
            found += engine.encode(piece, add_special=False)
        else:
            found.append(_embedded(engine, runner.encoder, piece, f"{encoded.key}-{i}"))
    return found


def _picture_at(source: Any, hosts: Collection[str]) -> "Medium":
    """From whatever `vision.read_picture` reads. Web addresses are fetched from these hosts alone."""
    from llamina.vision import read_picture

    if isinstance(source, str) and source.startswith("http"):
        from llamina.vision.fetch import fetch, host_of

        if (host := host_of(source)) not in hosts:
            message = f"pictures of {host!r} are not fetched: give a data: URL, or load the model with picture_hosts"
            raise InvalidPicture(message, "messages")
        source = fetch(source)
    return read_picture(source)


def _sound_at(source: Any) -> "Medium":
    """From whatever `sound.read_sound` reads."""
    from llamina.sound import read_sound

    return read_sound(source)


def _embedded(engine: "Engine", encoder: "Encoder[Any]", rows: "Rows", key: str) -> Embedded:
    """A part's rows. M-RoPE counts a tile's in a grid, all at one time, and a sound's one after the other."""
    if not encoder.grid_positions or not engine.runner.model.config.rope_sections:
        return Embedded(rows.values, both_ways=encoder.both_ways, key=key)
    columns, lines = rows.grid
    y, x = np.divmod(np.arange(columns * lines, dtype=np.int32), columns)
    places = np.stack([np.zeros_like(y), y, x], 1)
    return Embedded(rows.values, places, max(columns, lines), both_ways=encoder.both_ways, key=key)
