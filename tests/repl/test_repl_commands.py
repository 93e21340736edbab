"""The commands of `llamina chat`, with a partner that says what it is told to."""

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from llamina.engine.request import request_of
from llamina.errors import RequestError
from llamina.repl import transcript
from llamina.repl.loop import Repl
from llamina.repl.markdown import finished
from llamina.repl.partner import Figures, Message, Piece
from llamina.repl.talk import Talk


class Said:
    """A prepared answer."""

    def __init__(self, message: dict[str, Any]) -> None:
        self._message = message

    def __iter__(self) -> Iterator[Piece]:
        yield Piece(reasoning="hm ")
        for word in str(self._message["content"]).split(" "):
            yield Piece(text=word + " ")

    def stop(self) -> None:
        raise AssertionError("nobody stops it")

    def message(self) -> dict[str, Any]:
        return self._message

    def figures(self) -> Figures:
        return Figures(10, 4, 3, 0.5, 7.0)


class Prepared:
    """A partner with answers in stock; it remembers what it was asked."""

    name, context = "prepared", 100

    def __init__(self, *answers: str | dict[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[list[Message], dict[str, Any]]] = []

    def answer(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Said:
        self.asked.append((list(messages), dict(options)))
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return Said({"role": "assistant", "content": said} if isinstance(said, str) else said)

    def check(self, options: Mapping[str, Any]) -> None:
        request_of([0], {name: value for name, value in options.items() if value is not None})

    def models(self) -> list[str]:
        return ["prepared", "other"]

    def use(self, name: str) -> None:
        self.name = name

    def stats(self) -> dict[str, str]:
        return {"model": self.name}

    def save(self, path: Path, messages: Sequence[Message]) -> str:
        transcript.write(path, messages)
        return "all"

    def load(self, path: Path) -> list[dict[str, Any]]:
        return transcript.read(path) or []

    def close(self) -> None: ...


class Typed:
    """What people type."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines, self.drafts = list(lines), list[str]()

    def read(self, draft: str = "") -> str:
        self.drafts.append(draft)
        if not self.lines:
            raise EOFError
        return draft + self.lines.pop(0)


def talked(partner: Prepared, *lines: str, confirm: bool = True) -> tuple[Repl, str]:
    """A conversation that is over, and what was on the screen."""
    screen = io.StringIO()
    repl = Repl(
        Talk(partner), Console(file=screen, width=100, highlight=False), reader=Typed(lines), confirm=lambda _: confirm
    )
    repl.run()
    return repl, screen.getvalue()


def test_questions_are_answered_in_turn() -> None:
    partner = Prepared("one", "two")
    repl, screen = talked(partner, "first", "", "  second  ")
    assert "one" in screen and "two" in screen
    contents = [message["content"] for message in repl.talk.messages]
    assert contents == ["first", "one", "second", "two"]
    assert [len(messages) for messages, _ in partner.asked] == [1, 3]


def test_undo_regen_edit_reset() -> None:
    partner = Prepared("one", "again", "edited", "new")
    repl, _ = talked(partner, "/system be brief", "first", "/regen", "/edit", " and more", "/reset", "other", "/undo")
    assert [messages[-1]["content"] for messages, _ in partner.asked] == ["first", "first", "first and more", "other"]
    assert repl.talk.messages == [{"role": "system", "content": "be brief"}]
    _, screen = talked(Prepared(), "/undo")
    assert "nothing was asked yet" in screen


def test_settings_reach_the_model_and_are_checked() -> None:
    partner = Prepared("one", "two")
    repl, screen = talked(
        partner, "/set temperature 0.5", "/set stop [\"x\"]", "a", "/set temperature", "b", "/set temprature 1",
        "/set top_p 7", "/show settings",
    )  # fmt: skip
    assert partner.asked[0][1] == {"temperature": 0.5, "stop": ["x"]}
    assert partner.asked[1][1] == {"stop": ["x"]}
    assert "did you mean temperature?" in screen and "top_p" in screen
    assert repl.talk.settings == {"stop": ["x"]}


def test_grammars(tmp_path: Path) -> None:
    partner = Prepared("one", "two", "three")
    (tmp_path / "schema.json").write_text('{"type": "integer"}')
    talked(partner, f"/grammar {tmp_path / 'schema.json'}", "a", '/grammar root ::= "yes"', "b", "/grammar", "c")
    assert [options for _, options in partner.asked] == [
        {"json_schema": {"type": "integer"}}, {"grammar": 'root ::= "yes"'}, {}
    ]  # fmt: skip


def test_tools_are_called_after_a_yes(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        'import os\n\ndef add(a: int, b: int) -> int:\n    """Add."""\n    return a + b\n'
    )
    function = {"name": "add", "arguments": '{"a": 2, "b": 3}'}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    for confirm, result in ((True, "5"), (False, "the user does not allow this call")):
        partner = Prepared(call, "five")
        repl, screen = talked(partner, f"/tools {tmp_path / 'tools.py'}", "add", confirm=confirm)
        assert partner.asked[0][1]["tools"][0]["function"]["name"] == "add"
        assert partner.asked[1][0][-1] == {"role": "tool", "tool_call_id": "c1", "name": "add", "content": result}
        assert repl.talk.messages[-1]["content"] == "five" and f"add → {result}" in screen


def test_attachments(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("remember")
    Image.new("RGB", (1, 1)).save(tmp_path / "dot", "PNG")  # known by its bytes, not by its name
    partner = Prepared("one", "two", "three")
    talked(partner, f"/file {tmp_path / 'notes.txt'}", "read", f"/image {tmp_path / 'dot'}", "look", "plain")
    read, look, plain = (messages[-1]["content"] for messages, _ in partner.asked)
    assert "remember" in read and read.endswith("read")
    assert look[0]["image_url"]["url"].startswith("data:image/png;base64,iVBO") and look[1]["text"] == "look"
    assert plain == "plain"
    _, screen = talked(Prepared(), f"/file {tmp_path / 'none'}", f"/image {tmp_path / 'notes.txt'}")
    assert "cannot be read" in screen and "the picture is none of PNG, JPEG" in screen


def test_pictures_and_sounds_are_known_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their names; a picture may be at an address."""
    file = io.BytesIO()
    Image.new("RGB", (1, 1)).save(file, "WEBP")
    monkeypatch.setattr("llamina.vision.fetch.fetch", lambda url: file.getvalue())
    (tmp_path / "speech").write_bytes(b"fLaC" + bytes(10))
    (tmp_path / "notes.wav").write_bytes(b"no sound")
    partner = Prepared("one", "two")
    lines = ("/image https://example.org/cat", "look", f"/audio {tmp_path / 'speech'}", "listen")
    _, screen = talked(partner, *lines, f"/audio {tmp_path / 'notes.wav'}", "/image /nowhere.png")
    look, listen = (messages[-1]["content"][0] for messages, _ in partner.asked)
    assert look["image_url"]["url"].startswith("data:image/webp;base64,UklGR") and "cat goes with" in screen
    assert listen["input_audio"] == {"data": "ZkxhQwAAAAAAAAAAAAA=", "format": "flac"}
    assert "none of WAV, MP3 and FLAC" in screen and "cannot be read" in screen


def test_a_question_with_a_picture_is_answered_again_with_it(tmp_path: Path) -> None:
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    partner = Prepared("one", "two")
    talked(partner, f"/image {tmp_path / 'dot.png'}", "look", "/regen")
    assert partner.asked[0][0] == partner.asked[1][0]


def test_control_characters_of_a_model_do_not_reach_the_terminal() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=100, highlight=False, force_terminal=True, color_system=None)
    repl = Repl(Talk(Prepared("red \x1b[31mtext\x07")), console, plain=True, reader=Typed(["colour"]))
    repl.run()
    assert "red ␛[31mtext␇" in screen.getvalue() and "\x1b[31m" not in screen.getvalue()


def test_saved_and_loaded(tmp_path: Path) -> None:
    talked(Prepared("one"), "first", f"/save {tmp_path / 'talk'}")
    repl, _ = talked(Prepared("two"), f"/load {tmp_path / 'talk'}", "second")
    assert [message["content"] for message in repl.talk.messages] == ["first", "one", "second", "two"]
    (tmp_path / "other.json").write_text("{}")
    _, screen = talked(Prepared(), f"/load {tmp_path / 'other.json'}", "/load", "/save")
    assert "no conversation that /save has written" in screen and "give a file" in screen


def test_a_question_that_fails_is_not_kept() -> None:
    partner = Prepared(RequestError("too long"), "fine")
    repl, screen = talked(partner, "a", "b")
    assert "error: too long" in screen
    assert [message["content"] for message in repl.talk.messages] == ["b", "fine"]


def test_every_command_is_listed_and_named() -> None:
    wanted = [
        "system",
        "set",
        "show",
        "save",
        "load",
        "reset",
        "regen",
        "edit",
        "undo",
        "image",
        "file",
        "grammar",
        "tools",
        "model",
        "stats",
        "help",
        "quit",
    ]
    _, screen = talked(Prepared(), "/help", "/stast", "/model other", "/show model", "/model")
    assert all(f"/{name}" in screen for name in wanted)
    assert "did you mean /stats?" in screen and "* other" in screen


@pytest.mark.parametrize(
    ("text", "open"),
    [
        ("one line", "one line"),
        ("a\n\nb", "b"),
        ("a\n\n```\ncode\n\nmore", "```\ncode\n\nmore"),
        ("```\ncode\n```\n\nafter", "after"),
        ("````\n```\n\n", "````\n```\n\n"),
        ("~~~\nx\n\n~~~\n\ny", "y"),
        ("a\n\n", ""),
    ],
)
def test_only_the_open_block_is_drawn_again(text: str, open: str) -> None:
    assert text[finished(text) :] == open
