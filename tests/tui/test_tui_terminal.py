"""`llamina tui` in a real pseudo-terminal: a model of this machine, Ctrl-C, and the way out."""

import os
import re
import sys
import time
from pathlib import Path

import pytest

from skips import import_peer, needs

pytestmark = needs("hardware", os.name == "posix", "pseudo-terminals")
COLUMNS, ROWS = 80, 24


class Screen:
    """A terminal of 80 × 24 with `llamina` in it, as a person would see it."""

    def __init__(self, arguments: list[str], folder: Path, **environment: str) -> None:
        pexpect, pyte = import_peer("pexpect"), import_peer("pyte")
        variables = {**os.environ, "TERM": "xterm-256color", "LLAMINA_DATA": str(folder), **environment}
        if "NO_COLOR" not in environment:
            variables.pop("NO_COLOR", None)
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self.sent = b""  # to the terminal
        command = ["-m", "llamina", *arguments]
        self.child = pexpect.spawn(sys.executable, command, env=variables, dimensions=(ROWS, COLUMNS), timeout=60)

    def text(self) -> str:
        pexpect = import_peer("pexpect")
        while True:
            try:
                data = self.child.read_nonblocking(65536, timeout=0.05)
            except (pexpect.TIMEOUT, pexpect.EOF):
                return "\n".join(line.rstrip() for line in self._screen.display)
            self.sent += data
            self._stream.feed(re.sub(rb"\x1b\[[<>=?][0-9;$]*[a-zA-Z]", b"", data))  # modes, which pyte takes for others

    def wait(self, pattern: str, seconds: float = 90.0) -> str:
        end = time.monotonic() + seconds
        while not re.search(pattern, shown := self.text()):
            assert time.monotonic() < end and self.child.isalive(), f"{pattern!r} does not come:\n{shown}"
        return shown

    def leave(self) -> None:
        """Ctrl-Q; it ends without an error, and gives the terminal back."""
        self.child.send("\x11")
        self.child.expect_exact(import_peer("pexpect").EOF)
        self.sent += self.child.before
        self.child.close()
        assert self.child.exitstatus == 0
        assert b"\x1b[?1049l" in self.sent


def test_a_conversation_in_a_terminal(smollm2: Path, tmp_path: Path) -> None:
    """Ctrl-C stops an answer and keeps the talk; it is there at the next start, and Ctrl-C alone does not leave."""
    options = ["tui", "-m", str(smollm2), "--temp", "0", "-n", "600", "-c", "1024"]
    screen = Screen(options, tmp_path)
    screen.wait("Keys")
    screen.wait(smollm2.stem)
    screen.child.send("Write a very long story about a llama.\r")
    screen.wait(r"(\w+ ){8,}(.*\n)*.*answering")
    screen.child.send("\x03")
    screen.wait(r"tok/s.*first token after.*s\n?.*stopped")
    screen.child.send("\x07")  # Ctrl-G
    screen.wait(r"KV cache [\d.]+ %(.*\n)*.*batch \d")
    screen.child.send("\x03")
    screen.wait("Ctrl-Q leaves")
    screen.leave()
    second = Screen(options, tmp_path)
    second.wait("Keys")
    second.child.send("\x0f")  # Ctrl-O
    second.wait("Write a very long story")
    second.child.send("\r")
    second.wait("Write a very long story about a llama")
    second.leave()


def test_leaving_while_the_model_loads(smollm2: Path, tmp_path: Path) -> None:
    empty = str(tmp_path / "cache")  # kernels are compiled: that takes a while on any machine
    screen = Screen(["tui", "-m", str(smollm2)], tmp_path, LLAMINA_CACHE=empty)
    screen.wait("loading the model")
    screen.leave()


@pytest.mark.parametrize("wanted", [True, False], ids=["colours", "NO_COLOR"])
def test_colours_only_where_they_are_wanted(tmp_path: Path, wanted: bool) -> None:
    """The top view without a server: it says so, with NO_COLOR in black and white."""
    variables = {"COLORTERM": "truecolor"} | ({} if wanted else {"NO_COLOR": "1"})
    screen = Screen(["top", "--url", "http://127.0.0.1:9"], tmp_path, **variables)
    screen.wait("127.0.0.1:9/dashboard/events")
    screen.leave()
    colours = {tuple(found.split(b";")) for found in re.findall(rb"[34]8;2;(\d+;\d+;\d+)", screen.sent)}
    assert colours and wanted == any(len({*colour}) > 1 for colour in colours)
