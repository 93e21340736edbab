"""`llamina chat` in a real pseudo-terminal, and with a server behind a URL."""

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skips import import_peer, needs

pytestmark = needs("hardware", os.name == "posix", "pseudo-terminals")


class Screen:
    """A terminal of 100 × 30 with `llamina chat` in it, as a person would see it."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        pexpect, pyte = import_peer("pexpect"), import_peer("pyte")
        environment = {**os.environ, "TERM": "xterm-256color", "LLAMINA_DATA": str(folder), "COLUMNS": "100"}
        environment.pop("NO_COLOR", None)
        self._screen = pyte.HistoryScreen(100, 30, history=2000, ratio=1)
        self._stream = pyte.ByteStream(self._screen)
        command = ["-m", "llamina", "chat", *arguments]
        self.child = pexpect.spawn(sys.executable, command, env=environment, dimensions=(30, 100), timeout=60)

    def text(self) -> str:
        """All lines, those that have scrolled away included."""
        while True:
            try:
                data = self.child.read_nonblocking(65536, timeout=0.05)
            except Exception:
                break
            self._stream.feed(data)
            if b"\x1b[6n" in data:  # where is the cursor?
                self.child.send(f"\x1b[{self._screen.cursor.y + 1};{self._screen.cursor.x + 1}R")
        gone = ["".join(line[x].data for x in range(100)) for line in self._screen.history.top]
        return "\n".join(line.rstrip() for line in [*gone, *self._screen.display])

    def wait(self, pattern: str, seconds: float = 60.0, count: int = 1) -> str:
        end = time.monotonic() + seconds
        while len(re.findall(pattern, shown := self.text())) < count:
            assert time.monotonic() < end, f"{pattern!r} does not come {count} times:\n{shown}"
        return shown

    def type(self, text: str) -> None:
        self.child.send(text)


@pytest.fixture
def screen(smollm2: Path, tmp_path: Path) -> Iterator[Screen]:
    screen = Screen(["-m", str(smollm2), "--temp", "0", "-n", "400", "-c", "1024"], tmp_path)
    screen.wait("/help lists the commands")
    yield screen
    screen.child.close(force=True)


def test_a_conversation(screen: Screen, tmp_path: Path) -> None:
    screen.type("Name three primary colours.\r")
    screen.wait(r"first token after")
    screen.type("/sta\t")
    screen.wait("> /stats")
    screen.type("\r")
    screen.wait("prefix cache")
    screen.type("/set temp\t")
    screen.wait("> /set temperature")
    screen.type(" 0.5\r")
    screen.wait(r"temperature is 0.5")
    screen.type(f"/save {tmp_path}/talk\r")
    screen.wait("with their KV cache")
    screen.type("\x1b[A\x1b[A\x1b[A\x1b[A")  # up, to the first message
    screen.wait("> Name three primary colours.", count=2)
    screen.type("\x03")
    screen.wait("Ctrl-D or /quit leaves")
    screen.type("/quit\r")
    screen.child.expect_exact(import_peer("pexpect").EOF)
    screen.child.close()
    assert screen.child.exitstatus == 0


def test_ctrl_c_stops_an_answer_and_keeps_the_talk(screen: Screen) -> None:
    screen.type("Write a very long story about a llama.\r")
    before = screen.wait(r"> Write a very long story about a llama\.\n(.*\n)*?.*\w+ \w+")
    screen.type("\x03")
    shown = screen.wait("stopped")
    assert len(shown) >= len(before)
    screen.type("/show messages\r")
    screen.wait("assistant: ")
    screen.type("\x04")
    screen.child.expect_exact(import_peer("pexpect").EOF)


def test_a_conversation_goes_on_with_its_kv_cache(smollm2: Path, tmp_path: Path) -> None:
    options = ["-m", str(smollm2), "--temp", "0", "-n", "24", "-c", "1024"]
    first = Screen(options, tmp_path)
    first.wait("/help lists the commands")
    first.type("Tell me about the history of the city of Paris in a few words.\r")
    first.wait("first token after")
    first.type(f"/save {tmp_path}/talk\r")
    first.wait("saved 2 messages with their KV cache")
    first.child.close(force=True)
    second = Screen([*options, "--load", f"{tmp_path}/talk"], tmp_path)
    second.wait("assistant: ")
    second.type("And why?\r")
    second.wait("first token after")
    second.type("/stats\r")
    shown = second.wait(r"prefix cache +\d+ of \d+")
    found = re.search(r"prefix cache +(\d+) of (\d+)", shown)
    assert found and int(found[1]) >= 32, shown
    second.child.close(force=True)
