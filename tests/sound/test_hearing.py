"""Models that hear: a sound and a question in, logits as llama.cpp's and an answer out."""

import base64
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import llamina
from golden import sound_models, vision_models
from llama_vision import MARKER, logits_after
from llamina.engine.tasks.chat import prepare
from llamina.errors import InvalidSound, RequestError
from llamina.sound import read_sound

DATA = list(sound_models.sounds())
SOUNDS = [read_sound(data) for data in DATA]
ROWS = 100  # of MERaLiON's, in 30 seconds
CACHED = 96  # in whole pages of 16


def part(data: bytes) -> dict[str, object]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}


def question(*sounds: bytes) -> list[dict[str, object]]:
    content = [{"type": "text", "text": "<5>"}, *map(part, sounds), {"type": "text", "text": "<9><11>"}]
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize(
    ("name", "family", "rows", "backend"),
    [
        ("llama-dense", "ultravox", 375, "cpu"),
        ("qwen2-dense", "qwen2a", 750, "cpu"),
        ("qwen2vl-dense", "qwen25o", 750, "cpu"),
        ("llama-dense", "glma", 377, "cpu"),
        ("qwen2-dense", "musicflamingo", 751, "cpu"),  # with the token before it
        ("qwen3-dense", "qwen3a", 26, "cpu"),
        ("llama-dense", "meralion", ROWS, "cpu"),
        ("llama-dense", "meralion", ROWS, "reference"),
    ],
)
def test_logits_after_a_sound_are_llama_cpps(
    name: str, family: str, rows: int, backend: str, talking: Callable[[str], Path], mmproj: Callable[..., Path]
) -> None:
    model, hearing = talking(name), mmproj(family, 256)
    with llamina.load(model, mmproj=hearing, backend=backend, kv_type="f32", context=1024) as engine:
        tokens = prepare(engine, question(DATA[2]), {})[0]
        got = engine.logits(tokens)[-1]
    want, position = logits_after(model, hearing, f"<1><5>{MARKER}<9><11><2><3>", [SOUNDS[2].samples])
    assert position == len(tokens) == 6 + rows + (2 if family.startswith("qwen") else 0)
    assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < 1e-5


def test_one_file_that_sees_and_hears(talking: Callable[[str], Path], mmproj: Callable[..., Path]) -> None:
    """A picture and a sound in one message, each by its half of the file."""
    model, senses, pixels = talking("qwen2vl-dense"), mmproj("qwen25o", 256), next(vision_models.pictures())
    with llamina.load(model, mmproj=senses, kv_type="f32", context=1024) as engine:
        assert engine.runner.pictures.there and engine.runner.sounds.there
        message = question(DATA[0])
        message[0]["content"].insert(0, {"type": "image", "image": pixels})  # type: ignore[attr-defined]
        tokens = prepare(engine, message, {})[0]
        got = engine.logits(tokens)[-1]
    want, _ = logits_after(model, senses, f"<1>{MARKER}<5>{MARKER}<9><11><2><3>", [pixels, SOUNDS[0].samples])
    assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < 1e-5


@pytest.fixture(scope="module")
def engine(talking: Callable[[str], Path], mmproj: Callable[..., Path]) -> Iterator[llamina.Engine]:
    with llamina.load(talking("llama-dense"), mmproj=mmproj("meralion", 256), threads=1, context=512) as found:
        yield found


def test_answers_to_sounds(engine: llamina.Engine, tmp_path: Path) -> None:
    """The same sound from any source, counted as its rows, and its rows reused."""
    first = engine.chat(question(DATA[0]), max_tokens=4, temperature=0.0)
    assert first.usage.prompt_tokens == 6 + ROWS and first.usage.cached_tokens == 0
    (tmp_path / "speech.wav").write_bytes(DATA[0])
    for source in (tmp_path / "speech.wav", DATA[0], SOUNDS[0].samples, (SOUNDS[0].samples, 16000)):
        again = question()
        again[0]["content"].insert(1, {"type": "audio", "audio": source})  # type: ignore[attr-defined]
        answer = engine.chat(again, max_tokens=4, temperature=0.0)
        assert answer.tokens == first.tokens and answer.usage.cached_tokens >= CACHED
    other = engine.chat(question(DATA[2]), max_tokens=4, temperature=0.0)
    assert other.usage.cached_tokens == 2
    assert engine.chat(question(DATA[1]), max_tokens=4, temperature=0.0).usage.prompt_tokens == 6 + 2 * ROWS


def test_many_who_ask_at_once(engine: llamina.Engine) -> None:
    """The same tokens alone and beside others, whose prompts are computed in chunks."""
    alone = [engine.chat(question(data), max_tokens=6, seed=i).tokens for i, data in enumerate(DATA)]
    turns = [engine.stream_chat(question(data), max_tokens=6, seed=i) for i, data in enumerate(DATA)]
    plain = engine.stream_chat("<7>", max_tokens=6, seed=1)
    assert [turn.result().tokens for turn in turns] == alone
    assert plain.result().tokens == engine.chat("<7>", max_tokens=6, seed=1).tokens


def test_bits_do_not_depend_on_chunks(engine: llamina.Engine) -> None:
    tokens = prepare(engine, question(DATA[1]), {})[0]
    whole = engine.logits(tokens)[-1]
    with llamina.load(engine.runner.file, threads=2, context=512, step_tokens=48) as other:
        assert np.array_equal(other.logits(tokens)[-1], whole)


def test_a_talk_about_a_sound(engine: llamina.Engine, tmp_path: Path) -> None:
    messages = question(DATA[0])
    first = engine.chat(messages, max_tokens=3, temperature=0.0)
    messages += [first.message(), {"role": "user", "content": "<8>"}]
    second = engine.chat(messages, max_tokens=3, temperature=0.0)
    assert second.usage.cached_tokens >= CACHED
    assert engine.render_chat(messages).startswith(f"<1><5>{MARKER}<9><11><2>")
    session = llamina.Session(engine)
    content = [{"type": "text", "text": "<5>"}, {"type": "audio", "audio": SOUNDS[0].samples}, "<9><11>"]
    assert session.ask(content, max_tokens=3, temperature=0.0).result().tokens == first.tokens
    session.save(tmp_path / "talk")
    again = llamina.Session.load(engine, tmp_path / "talk")
    found = [each.ask("<8>", max_tokens=3, temperature=0.0).result() for each in (session, again)]
    assert found[0].tokens == found[1].tokens == second.tokens and found[1].usage.cached_tokens >= CACHED


def test_a_sound_that_does_not_fit(engine: llamina.Engine) -> None:
    """It is refused before it is encoded, if it alone is too long."""
    long = {"type": "audio", "audio": np.zeros(180 * 16000, np.float32)}
    with pytest.raises(llamina.errors.ContextTooLong, match="a sound becomes 700 tokens and the context holds 512"):
        engine.chat([{"role": "user", "content": [long]}])
    with pytest.raises(llamina.errors.ContextTooLong, match="the prompt has"):
        engine.chat(question(*DATA, *DATA[:2]))


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ({"type": "input_audio"}, RequestError, "input_audio has no data"),
        ({"type": "input_audio", "input_audio": {"data": 5}}, RequestError, "input_audio has no data"),
        ({"type": "input_audio", "input_audio": {"data": "", "url": "x"}}, RequestError, "has 'url': data and format"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "ogg"}}, RequestError, "must be one of wav"),
        ({"type": "input_audio", "input_audio": {"data": "/etc/passwd"}}, InvalidSound, "not base64|none of WAV"),
        ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}, InvalidSound, "none of WAV"),
        ({"type": "audio"}, RequestError, "'audio' has no audio"),
        ({"type": "audio", "audio": "speech.wav"}, InvalidSound, "pathlib.Path"),
        ({"type": "audio", "audio": Path("/nowhere.wav")}, InvalidSound, "cannot be read"),
        ({"type": "image", "image": np.zeros((9, 9), np.uint8)}, RequestError, "one that sees"),
    ],
)
def test_what_cannot_be_heard(
    engine: llamina.Engine, content: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        engine.chat([{"role": "user", "content": [content]}])


def test_the_encoder_is_found_beside_the_model(
    talking: Callable[[str], Path], mmproj: Callable[..., Path], tmp_path: Path
) -> None:
    model = shutil.copy(talking("llama-dense"), tmp_path / "tiny-Q8_0.gguf")
    shutil.copy(mmproj("llava", 256), tmp_path / "mmproj-tiny-f16.gguf")
    with llamina.load(model, threads=1, context=256) as engine:
        assert engine.runner.pictures.there and not engine.runner.sounds.there
        with pytest.raises(RequestError, match="does not hear"):
            engine.chat(question(DATA[0]))
        shutil.copy(mmproj("meralion", 256), tmp_path / "mmproj-audio.gguf")
        assert engine.runner.sounds.there
        assert engine.chat(question(DATA[0]), max_tokens=1).usage.prompt_tokens == 6 + ROWS
    with llamina.load(model, mmproj=tmp_path / "mmproj-audio.gguf", threads=1, context=256) as engine:
        assert engine.runner.sounds.there and not engine.runner.pictures.there
    with pytest.raises(llamina.errors.UnsupportedModel, match="belongs to another model"):
        llamina.load(model, mmproj=mmproj("meralion"), threads=1)
