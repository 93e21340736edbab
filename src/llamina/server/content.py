"""Contents of messages: a text, or parts where there are pictures or sounds among them."""

from typing import Any

Content = str | list[dict[str, Any]]


def picture(url: str) -> Content:
    """A picture, by its `data:` URL or its web address; whether that is fetched is the model's to say."""
    return [{"type": "image_url", "image_url": {"url": url}}]


def encoded_picture(data: str) -> Content:
    """A picture in base64, of whichever kind."""
    return picture(f"data:application/octet-stream;base64,{data}")


def sound(data: str) -> Content:
    """A sound in base64, of whichever kind."""
    return [{"type": "input_audio", "input_audio": {"data": data}}]


def joined(first: Content, second: Content, between: str) -> Content:
    """Both, with a text between them if both are, or end and begin with, text."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{between}{second}" if first and second else first or second
    before, after = _parts(first), _parts(second)
    gap = _parts(between) if before and after and before[-1]["type"] == after[0]["type"] == "text" else []
    return [*before, *gap, *after]


def _parts(content: Content) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content
