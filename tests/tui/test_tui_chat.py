"""Conversations in the TUI, by Textual's pilot: typed at, stopped, answered again, edited, kept."""

import threading
import time
from pathlib import Path

import pytest
from scripted import Scripted, chat_of
from textual.pilot import Pilot
from textual.widgets import Collapsible, ProgressBar

from llamina.errors import LlaminaError
from llamina.repl.library import Library
from llamina.tui.chat import Chat, Progress
from llamina.tui.composer import Composer
from llamina.tui.messages import Answer
from llamina.tui.shelf import Shelf
from llamina.tui.speeds import Speeds
from llamina.tui.status_line import Loading
from pilots import Steps, play, sees, shown, type_in, until


def talk(chat: Chat, steps: Steps, size: tuple[int, int] = (130, 36)) -> None:
    """Run the application, and these steps in it; then close it, as the command does."""
    play(chat, steps, size)
    chat.close()


async def ready(pilot: Pilot[None]) -> None:
    await sees(pilot, "scripted")


def test_tokens_arrive_and_figures_follow(tmp_path: Path) -> None:
    gate = threading.Semaphore(0)
    partner = Scripted("# Llamas\n\nThey **hum** softly.", gate=gate)
    chat = chat_of(partner, tmp_path)

    async def steps(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await type_in(pilot, "Why do llamas hum?")
        await sees(pilot, "Why do llamas hum?", "answering")
        gate.release(2)
        await sees(pilot, "They")
        assert "softly" not in shown(pilot) and "tok/s" not in shown(pilot)
        gate.release(10)
        await sees(pilot, "They hum softly.", "4 tokens, 7.0 tok/s · first token after 0.50 s", "14 % of 100")
        assert "answering" not in shown(pilot)

    talk(chat, steps)
    assert partner.asked == [[{"role": "user", "content": "Why do llamas hum?"}]]
    assert partner.closed


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
def test_an_answer_that_is_stopped_stays(tmp_path: Path, key: str) -> None:
    gate = threading.Semaphore(2)
    partner = Scripted("one two three four", "five", gate=gate)
    chat = chat_of(partner, tmp_path)

    async def steps(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await type_in(pilot, "count")
        await sees(pilot, "one two")
        await pilot.press(key)
        await sees(pilot, "stopped")
        await until(pilot, lambda: not chat.current.busy)
        gate.release(10)
        await type_in(pilot, "on")
        await sees(pilot, "five")

    talk(chat, steps)
    assert [message["content"] for message in partner.asked[1]] == ["count", "one two", "on"]


def test_again_and_edit_last(tmp_path: Path) -> None:
    partner = Scripted("first", "second", "third")
    chat = chat_of(partner, tmp_path)

    async def steps(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await type_in(pilot, "question")
        await sees(pilot, "first token")
        await until(pilot, lambda: not chat.current.busy)
        await pilot.press("ctrl+r")
        await sees(pilot, "second")
        await until(pilot, lambda: not chat.current.busy)
        assert "first" not in shown(pilot).replace("first token", "")
        await pilot.press("up")
        await until(pilot, lambda: chat.query_one(Composer).text == "question")
        assert not chat.query(Answer)
        await type_in(pilot, " two")
        await sees(pilot, "third")

    talk(chat, steps)
    assert [asked[-1]["content"] for asked in partner.asked] == ["question", "question", "question two"]
    assert [len(asked) for asked in partner.asked] == [1, 1, 1]


def test_several_lines_commands_and_errors(tmp_path: Path) -> None:
    partner = Scripted("fine", LlaminaError("the context is full"))
    chat = chat_of(partner, tmp_path)

    async def steps(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await pilot.press("a", "ctrl+j", "b", "backslash", "enter", "c", "enter")
        await sees(pilot, "fine")
        await until(pilot, lambda: not chat.current.busy)
        await type_in(pilot, "/set temperature -7")
        await sees(pilot, "temperature")
        await until(pilot, lambda: not chat.current.busy)
        await type_in(pilot, "/stast")
        await sees(pilot, "did you mean /stats?")
        await until(pilot, lambda: not chat.current.busy)
        await type_in(pilot, "/help")
        await sees(pilot, "/grammar", "F1 lists the keys")
        await until(pilot, lambda: not chat.current.busy)
        await type_in(pilot, "more")
        await sees(pilot, "the context is full")
        await until(pilot, lambda: chat.query_one(Composer).text == "more")
        await pilot.press("f1")
        await sees(pilot, "search titles and messages")
        await pilot.press("escape")
        await until(pilot, lambda: chat.app.screen is chat)

    talk(chat, steps)
    assert partner.asked[0][0]["content"] == "a\nb\nc"


def test_an_answer_goes_on_while_another_is_read(tmp_path: Path) -> None:
    gate = threading.Semaphore(100)
    partner = Scripted("short", "a longer answer", gate=gate)
    chat = chat_of(partner, tmp_path)

    async def steps(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await type_in(pilot, "alpha")
        await sees(pilot, "short", "first token")
        while gate.acquire(blocking=False):
            pass
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "short" not in shown(pilot))
        await type_in(pilot, "beta")
        await sees(pilot, "● beta")
        await pilot.press("ctrl+o", "ctrl+o", "down", "enter")
        await sees(pilot, "short")
        gate.release(100)
        await until(pilot, lambda: "● beta" not in shown(pilot))
        await pilot.press("ctrl+o", "ctrl+o", "up", "enter")
        await sees(pilot, "a longer answer")

    talk(chat, steps)


def test_conversations_are_found_after_a_restart(tmp_path: Path) -> None:
    async def first(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await type_in(pilot, "Why do llamas hum?")
        await sees(pilot, "because")
        await pilot.press("ctrl+n")
        await type_in(pilot, "Rivers of Peru?")
        await sees(pilot, "Amazon")

    talk(chat_of(Scripted("because", "Amazon"), tmp_path, system="Be brief."), first)
    partner = Scripted("again")
    chat = chat_of(partner, tmp_path)

    async def second(pilot: Pilot[None]) -> None:
        await sees(pilot, "Why do llamas hum?", "Rivers of Peru?", "scripted")
        await pilot.press("ctrl+f", *"because")
        await until(pilot, lambda: "Rivers" not in shown(pilot))
        await pilot.press("enter", "down", "enter")
        await sees(pilot, "Be brief.", "because")
        await type_in(pilot, "and")
        await sees(pilot, "again")
        await pilot.press("ctrl+f", *["backspace"] * 7, "enter", "home", "r")
        await sees(pilot, "A title for this conversation")
        await pilot.press("ctrl+u", "ctrl+k", *"Hums", "enter")
        await sees(pilot, "Hums")
        titles = chat.query_one("#titles")
        titles.focus()
        await pilot.press("end", "d")
        await sees(pilot, "Rivers of Peru?” for good?")
        await pilot.press("y")
        await until(pilot, lambda: "Rivers" not in shown(pilot))

    talk(chat, second)
    assert [message["content"] for message in partner.asked[0]] == ["Be brief.", "Why do llamas hum?", "because", "and"]
    kept, wrong = Library(tmp_path).read()
    assert [each.title for each in kept] == ["Hums"] and not wrong
    assert [message["content"] for message in kept[0].messages][-1] == "again"


def test_a_file_that_is_no_conversation_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")

    async def steps(pilot: Pilot[None]) -> None:
        await sees(pilot, "a conversation cannot be read")

    talk(chat_of(Scripted(), tmp_path), steps)


def test_loading_blocks_nothing(tmp_path: Path) -> None:
    partner, go = Scripted("yes"), threading.Event()

    def load(progress: Progress) -> Scripted:
        progress("compiling kernels", 3, 12)
        assert go.wait(20)
        return partner

    chat = Chat(load, Library(tmp_path))

    async def steps(pilot: Pilot[None]) -> None:
        await sees(pilot, "compiling kernels", "loading the model")
        assert chat.query_one(ProgressBar).percentage == 0.25
        await type_in(pilot, "are you there?")
        await sees(pilot, "still loading")
        await until(pilot, lambda: chat.query_one(Composer).text == "are you there?")
        go.set()
        await sees(pilot, "scripted")
        assert not chat.query_one(Loading).display
        await pilot.press("enter")
        await sees(pilot, "yes")

    talk(chat, steps)


def test_a_model_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    def load(progress: Progress) -> Scripted:
        raise LlaminaError("no file of that name")

    async def steps(pilot: Pilot[None]) -> None:
        await sees(pilot, "no file of that name", "no model")
        await type_in(pilot, "hello")
        await sees(pilot, "there is no model to answer")

    talk(Chat(load, Library(tmp_path)), steps)


def test_reasoning_is_folded_and_control_characters_are_harmless(tmp_path: Path) -> None:
    partner = Scripted("red \x1b[31mtext\x07")
    partner.reasoning = "let me think"
    chat = chat_of(partner, tmp_path)

    async def steps(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await type_in(pilot, "colour")
        await sees(pilot, "red ␛[31mtext␇", "reasoning")
        assert "let me think" not in shown(pilot)
        chat.query_one(Collapsible).collapsed = False
        await sees(pilot, "let me think")
        assert "\x1b" not in shown(pilot)

    talk(chat, steps)


@pytest.mark.parametrize(("key", "result"), [("y", "5"), ("n", "the user does not allow this call")])
def test_tools_are_called_after_a_yes(tmp_path: Path, key: str, result: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text('def add(a: int, b: int) -> int:\n    """Add."""\n    return a + b\n')
    function = {"name": "add", "arguments": '{"a": 2, "b": 3}'}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    partner = Scripted(call, "five")
    chat = chat_of(partner, tmp_path)

    async def steps(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await type_in(pilot, "/tools tools.py")
        await sees(pilot, "may call add")
        await until(pilot, lambda: not chat.current.busy)
        await type_in(pilot, "add")
        await sees(pilot, 'call add({"a": 2, "b": 3})?')
        await pilot.press(key)
        await sees(pilot, "five", f"add → {result}")

    talk(chat, steps)
    assert partner.asked[1][-1]["content"] == result


def test_80_by_24(tmp_path: Path) -> None:
    """The side panes are folded, and come when they are asked for; nothing is outside of the screen."""
    chat = chat_of(Scripted("fine"), tmp_path)

    async def steps(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await type_in(pilot, "hello")
        await sees(pilot, "fine", "Edit last", "Keys", "context")
        left, right = chat.query_one(Shelf), chat.query_one(Speeds)
        assert not left.display and not right.display
        await pilot.press("ctrl+o")
        assert left.display and chat.focused is chat.query_one("#titles")
        await sees(pilot, "Rename")
        await pilot.press("ctrl+o", "ctrl+g")
        assert not left.display and right.display
        await sees(pilot, "tokens/s", "measured here: nobody counts")
        await pilot.press("ctrl+g")
        field = chat.query_one(Composer).region
        assert field.right <= 80 and field.bottom <= 23
        await pilot.resize_terminal(130, 36)
        await until(pilot, lambda: left.display and right.display)

    talk(chat, steps, (80, 24))


def test_light_and_dark(tmp_path: Path) -> None:
    chat = chat_of(Scripted(), tmp_path)

    async def steps(pilot: Pilot[None]) -> None:
        await ready(pilot)
        dark = chat.background_colors[1].brightness
        await pilot.press("ctrl+l")
        await until(pilot, lambda: chat.background_colors[1].brightness > 0.8 > 0.2 > dark)

    talk(chat, steps)


def test_a_long_answer_does_not_slow_the_screen(tmp_path: Path) -> None:
    """Many blocks of Markdown: what is finished is not drawn again."""
    blocks = [f"## Part {n}\n\nSome `code` and *words* of it.\n\n- one\n- two\n" for n in range(40)]
    partner = Scripted("\n".join(blocks) + "\nthe very end")
    chat = chat_of(partner, tmp_path)

    async def steps(pilot: Pilot[None]) -> None:
        await ready(pilot)
        begun = time.perf_counter()
        await type_in(pilot, "go")
        await sees(pilot, "the very end")
        assert time.perf_counter() - begun < 20

    talk(chat, steps)
