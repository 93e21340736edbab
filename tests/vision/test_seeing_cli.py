"""Pictures on the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from golden import vision_models
from llamina.cli import cli

GREEDY = ("--temp", "0", "-n", "4", "-q", "--json", "-t", "1")


def invoke(*arguments: object, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=input)


@pytest.fixture
def cat(tmp_path: Path) -> Path:
    path = tmp_path / "cat.png"
    Image.fromarray(next(vision_models.pictures())).save(path)
    return path


def test_a_picture_and_a_question(cat: Path, talking: Callable[[str], Path], mmproj: Callable[..., Path]) -> None:
    model, sight = talking("llama-dense"), mmproj("llava", 256)
    plain = invoke("run", "-m", model, "<9>", *GREEDY)
    seen = invoke("run", "-m", model, "--mmproj", sight, "--image", cat, "<9>", *GREEDY)
    twice = invoke("run", "-m", model, "--mmproj", sight, "--image", cat, "--image", cat, "<9>", *GREEDY)
    counts = [json.loads(result.stdout)["usage"]["prompt_tokens"] for result in (plain, seen, twice)]
    assert counts == [4, 4 + 16, 4 + 32]
    session = cat.parent / "talk.llamina"
    talk = ("run", "-m", model, "--mmproj", sight, "--session", session)
    kept = [invoke(*talk, *more, *GREEDY) for more in (("--image", cat, "<9>"), ("<8>",))]
    assert json.loads(kept[0].stdout)["text"] == json.loads(seen.stdout)["text"]
    assert json.loads(kept[1].stdout)["usage"]["prompt_tokens"] > 2 * 4 + 16
    lines = f"/image {cat}\n<9>\n"
    talk = invoke("chat", "-m", model, "--mmproj", sight, "--temp", "0", "-n", "4", "-t", "1", "--plain", input=lines)
    assert talk.exit_code == 0 and json.loads(seen.stdout)["text"] in talk.stdout


def test_embeddings_of_pictures(cat: Path, talking: Callable[[str], Path], mmproj: Callable[..., Path]) -> None:
    model, sight = talking("llama-dense"), mmproj("llava", 256)
    told = invoke("embed", "-m", model, "--mmproj", sight, "--image", cat, "--image", cat, "<7>", "--json", "-t", "1")
    rows = json.loads(told.stdout)["embeddings"]
    assert len(rows) == 3 and [row["tokens"] for row in rows[1:]] == [16, 16]
    assert rows[1]["embedding"] == rows[2]["embedding"] != rows[0]["embedding"]
    alone = invoke("embed", "-m", model, "--mmproj", sight, "--image", cat, "-t", "1")
    assert len(alone.stdout.splitlines()) == 1 and len(alone.stdout.split()) == 256
    refused = invoke("embed", "-m", model, "--image", cat)
    assert refused.exit_code != 0 and "reads text only" in refused.stderr


def test_what_is_refused(
    cat: Path, talking: Callable[[str], Path], mmproj: Callable[..., Path], tmp_path: Path
) -> None:
    model, sight = talking("llama-dense"), mmproj("llava", 256)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "half.png").write_bytes(cat.read_bytes()[: cat.stat().st_size // 2])
    for arguments, message in (
        (("--image", cat), "reads text only"),
        (("--mmproj", sight, "--image", tmp_path / "notes.txt"), "none of PNG"),
        (("--mmproj", sight, "--image", tmp_path / "none.png"), "cannot be read"),
        (("--mmproj", sight, "--image", tmp_path / "half.png"), "the picture is damaged"),
        (("--mmproj", sight, "--image", "http://127.0.0.1:9/cat.png"), "cannot be had"),
        (("--mmproj", sight, "--image", cat, "--raw"), "part of the chat template"),
        (("--mmproj", model, "--image", cat), "an mmproj file has 'clip'"),
        (("--mmproj", mmproj("llava"), "--image", cat), "belongs to another model"),
    ):
        result = invoke("run", "-m", model, "<9>", "-n", "1", *arguments)
        assert result.exit_code != 0 and message in result.stderr, (arguments, result.output)
