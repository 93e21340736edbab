"""What a conversation in the terminal consists of: messages, settings, and what goes with the next message."""

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from llamina.chat import ToolCall
from llamina.chat.functions import Functions
from llamina.errors import RequestError
from llamina.repl.partner import Message, Partner

MOST = 10 << 20  # bytes of a text


class Talk:
    """Messages from the oldest on. A question and all that came of it are undone together."""

    def __init__(self, partner: Partner, system: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.partner = partner
        self.messages: list[dict[str, Any]] = []
        self.settings: dict[str, Any] = dict(settings or {})
        self.functions: Functions | None = None
        self._attached: list[dict[str, Any]] = []
        if system:
            self.system = system

    @property
    def system(self) -> str:
        first = self.messages[:1]
        return str(first[0]["content"]) if first and first[0]["role"] == "system" else ""

    @system.setter
    def system(self, text: str) -> None:
        rest = [message for message in self.messages if message["role"] != "system"]
        self.messages = [{"role": "system", "content": text}, *rest] if text else rest

    @property
    def options(self) -> dict[str, Any]:
        """What an answer is asked for with."""
        return {**self.settings, **({"tools": self.functions.tools} if self.functions else {})}

    def set(self, name: str, value: Any) -> None:
        """Change a setting; None takes it back. Raises RequestError for one that there is not."""
        changed = {key: kept for key, kept in self.settings.items() if key != name}
        if value is not None:
            changed[name] = value
        self.partner.check({name: None} if value is None else changed)
        self.settings = changed

    # ---- messages ----------------------------------------------------------------------------------------

    def ask(self, text: str) -> None:
        """Add a question, with what is attached to it."""
        attached, self._attached = self._attached, []
        content: Any = [*attached, {"type": "text", "text": text}] if attached else text
        if attached and all(part["type"] == "text" for part in attached):
            content = "\n\n".join([*(part["text"] for part in attached), text])
        self.messages.append({"role": "user", "content": content})

    def undo(self) -> str:
        """Take the last question back, with its answer; its text. Raises RequestError if there is none."""
        at = self._last_question()
        text = text_of(self.messages[at])
        del self.messages[at:]
        return text

    def again(self) -> None:
        """Take the last answer back, for another one. Raises RequestError if nothing was asked."""
        del self.messages[self._last_question() + 1 :]

    def _last_question(self) -> int:
        for at in range(len(self.messages) - 1, -1, -1):
            if self.messages[at]["role"] == "user":
                return at
        raise RequestError("nothing was asked yet: there is nothing to take back")

    def reset(self) -> None:
        """Forget what was said; the system message and the settings stay."""
        self.messages = [message for message in self.messages[:1] if message["role"] == "system"]
        self._attached = []

    # ---- attachments and tools ---------------------------------------------------------------------------

    def attach_text(self, path: Path) -> int:
        """Send a file's text with the next message; its length. Raises RequestError if it cannot be read."""
        try:
            text = _read(path).decode("utf-8")
        except UnicodeDecodeError:
            raise RequestError(
                f"{path} is not text in UTF-8: a picture is sent with /image, a sound with /audio"
            ) from None
        self._attached.append({"type": "text", "text": f"{path.name}:\n```\n{text.rstrip()}\n```"})
        return len(text)

    def attach_image(self, place: str) -> None:
        """Send the picture of a file or a web address with the next message, as OpenAI's API has it.

        Raises InvalidPicture if there is none.
        """
        from llamina.vision.fetch import fetch
        from llamina.vision.picture import LIMITS, SOURCE, file_url

        web = place.startswith(("http://", "https://"))
        data = fetch(place) if web else SOURCE.contents(Path(place).expanduser(), LIMITS.nbytes)
        self._attached.append({"type": "image_url", "image_url": {"url": file_url(data)}})

    def attach_sound(self, path: Path) -> None:
        """Send a sound with the next message, as OpenAI's API has it. Raises InvalidSound if it is none."""
        from llamina.sound.sound import LIMITS, SOURCE, format_of

        data = SOURCE.contents(path, LIMITS.nbytes)
        sound = {"data": base64.b64encode(data).decode(), "format": format_of(data)}
        self._attached.append({"type": "input_audio", "input_audio": sound})

    def load_tools(self, path: Path) -> list[str]:
        """Let the model call the functions of a Python file; their names. Raises RequestError if there are none."""
        scope: dict[str, Any] = {"__name__": path.stem}
        try:
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)
        except (OSError, SyntaxError, ValueError) as error:
            raise RequestError(f"{path} cannot be read as Python: {error}") from error
        own: list[Callable[..., Any]] = [
            value
            for name, value in scope.items()
            if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == path.stem
        ]
        self.functions = Functions(own)
        return [function.__name__ for function in own]

    def calls(self) -> list[ToolCall]:
        """The calls of the last message."""
        last: Message = self.messages[-1] if self.messages else {}
        found = []
        for call in last.get("tool_calls") or ():
            function = call["function"]
            found.append(ToolCall(call.get("id") or "", function["name"], function["arguments"]))
        return found


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST:
            raise RequestError(f"{path} has {path.stat().st_size} bytes: at most {MOST} are sent")
        return path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error


def text_of(message: Message) -> str:
    """The words of a message, without its pictures and sounds."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")
