"""Sounds on the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from golden import sound_models
from hostile_sounds import FORMATS, HOSTILE, READABLE, broken
from llamina.cli import cli

GREEDY = ("--temp", "0", "-n", "4", "-q", "--json", "-t", "1", "-c", "512")


def invoke(*arguments: object, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=input)


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    path = tmp_path / "speech.wav"
    path.write_bytes(next(sound_models.sounds()))
    return path


def test_a_sound_and_a_question(speech: Path, talking: Callable[[str], Path], mmproj: Callable[..., Path]) -> None:
    model, hearing = talking("llama-dense"), mmproj("meralion", 256)
    heard = invoke("run", "-m", model, "--mmproj", hearing, "--audio", speech, "<9>", *GREEDY)
    twice = invoke("run", "-m", model, "--mmproj", hearing, "--audio", speech, "--audio", speech, "<9>", *GREEDY)
    counts = [json.loads(result.stdout)["usage"]["prompt_tokens"] for result in (heard, twice)]
    assert counts == [4 + 100, 4 + 200]
    session = speech.parent / "talk.llamina"
    talk = ("run", "-m", model, "--mmproj", hearing, "--session", session)
    kept = [invoke(*talk, *more, *GREEDY) for more in (("--audio", speech, "<9>"), ("<8>",))]
    assert json.loads(kept[0].stdout)["text"] == json.loads(heard.stdout)["text"]
    assert json.loads(kept[1].stdout)["usage"]["prompt_tokens"] > 2 * 4 + 100
    lines = f"/audio {speech}\n<9>\n"
    plain = ("--temp", "0", "-n", "4", "-t", "1", "-c", "512", "--plain")
    spoken = invoke("chat", "-m", model, "--mmproj", hearing, *plain, input=lines)
    assert spoken.exit_code == 0 and json.loads(heard.stdout)["text"] in spoken.stdout


def test_what_is_refused(
    speech: Path, talking: Callable[[str], Path], mmproj: Callable[..., Path], tmp_path: Path
) -> None:
    model, hearing = talking("llama-dense"), mmproj("meralion", 256)
    (tmp_path / "notes.txt").write_text("no sound")
    for arguments, message in (
        (("--audio", speech), "does not hear"),
        (("--mmproj", hearing, "--audio", tmp_path / "notes.txt"), "none of WAV"),
        (("--mmproj", hearing, "--audio", tmp_path / "none.wav"), "cannot be read"),
        (("--mmproj", hearing, "--audio", speech, "--raw"), "part of the chat template"),
    ):
        result = invoke("run", "-m", model, "<9>", "-n", "1", *arguments)
        assert result.exit_code != 0 and message in result.stderr, (arguments, result.output)


def test_damaged_and_hostile_files(
    talking: Callable[[str], Path], mmproj: Callable[..., Path], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """An answer, or an error in words."""
    command = ("run", "-m", talking("llama-dense"), "--mmproj", mmproj("meralion", 256), "<9>", *GREEDY)
    files = HOSTILE | {f"{format} {k}": x for format in FORMATS for k, x in enumerate(broken(format, 8, golden))}
    path, refused = tmp_path / "sound", 0
    for name, data in files.items():
        path.write_bytes(data)
        result = invoke(*command, "--audio", path)
        assert isinstance(result.exception, SystemExit | None), (name, result.exception)
        assert result.exit_code == 0 or "sound" in result.stderr, (name, result.stderr)
        assert result.exit_code != 0 or name in READABLE or name not in HOSTILE, name
        refused += result.exit_code != 0
    assert refused >= len(HOSTILE) - len(READABLE)
