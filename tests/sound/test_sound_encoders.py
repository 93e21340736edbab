"""Sound encoders of every family, against what llama.cpp's libmtmd makes of the same sounds with the same files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from golden import sound_models
from llama_sound import ROWS as EACH
from llama_vision import rows_of
from llamina import sound
from llamina.backends import backend
from llamina.engine.runner.load import weights_of
from llamina.errors import ModelFileError, UnsupportedModel
from llamina.gguf import GGUF, open_model
from llamina.media import EncoderRunner, Rows
from llamina.models import Weights
from llamina.ops import Value, constant, scale
from llamina.sound import Encoder
from llamina.sound.mel import count
from llamina.sound.whisper import ROWS, Whisper

SOUNDS = [sound.read_sound(data) for data in sound_models.sounds()]
FAMILIES = [family for family in sound_models.FAMILIES if family != "voxtral_as_glma"]


def encoder_of(file: GGUF) -> Encoder:
    return sound.build(file.metadata, weights_of(file))


def rows(runner: EncoderRunner, k: int) -> list[np.ndarray]:
    return [part.values for part in runner.encode(SOUNDS[k]).parts if isinstance(part, Rows)]


@pytest.mark.parametrize(
    ("family", "name", "which"),
    [
        *((family, "cpu", (0, 1, 2)) for family in FAMILIES),
        ("ultravox", "reference", (2,)),
        ("qwen3a", "reference", (2,)),
    ],
)
def test_rows_are_llama_cpps(
    family: str, name: str, which: tuple[int, ...], mmproj: Callable[..., Path], golden: Callable[[str], Path]
) -> None:
    runner, facts = EncoderRunner(encoder_of(open_model(mmproj(family))), backend(name)), np.load(golden("sound.npz"))
    assert runner.width == sound_models.TEXT
    for k in which:
        found = rows(runner, k)
        assert f"{family}.{k}.{len(found)}" not in facts
        for j, got in enumerate(found):
            want = facts[f"{family}.{k}.{j}"]
            assert len(got) == facts[f"{family}.{k}.{j}.n"]
            assert np.sum(np.square(got[::EACH] - want)) / np.sum(np.square(want)) < 1e-6
    runner.close()


def test_rows_today(golden: Callable[[str], Path], mmproj: Callable[..., Path]) -> None:
    """What llama.cpp computes beside us is what it computed for the golden facts."""
    facts = np.load(golden("sound.npz"))
    found = rows_of(golden("stories260K.gguf"), mmproj("meralion"), SOUNDS[0].samples, sound_models.TEXT)
    assert len(found) == 1 and np.abs(found[0][::EACH] - facts["meralion.0.0"]).max() < 1e-2
    for seconds in (29.98, 29.99):  # where a second stretch begins
        silence = np.zeros(int(seconds * sound.RATE), np.float32)
        found = rows_of(golden("stories260K.gguf"), mmproj("meralion"), silence, sound_models.TEXT)
        assert len(found) == count(silence)


def test_texts_around_sounds(mmproj: Callable[[str], Path]) -> None:
    def texts(family: str) -> list[str]:
        parts = encoder_of(open_model(mmproj(family))).parts(SOUNDS[1])
        return [part if isinstance(part, str) else "*" for part in parts]

    assert texts("ultravox") == texts("glma") == texts("meralion") == ["*", "*"]
    assert texts("qwen2a") == texts("qwen25o") == ["<|audio_bos|>", "*", "*", "<|audio_eos|>"]
    assert texts("voxtral") == ["[BEGIN_AUDIO]", "*", "*"]
    assert texts("musicflamingo") == ["<sound>", "*", "*"]
    assert texts("qwen3a") == ["<|audio_start|>", *"*****", "<|audio_end|>"]


class Stacked(Whisper):
    """Rows as they are before any projection, twice as large."""

    def project(self, x: Value) -> Value:
        return scale(x, 2.0)


def test_rows_that_fill_no_stack(mmproj: Callable[[str], Path]) -> None:
    """1500 rows by eights: zeros are stacked with the last four, which nobody attends to. llama.cpp ends there."""
    file, found = open_model(mmproj("ultravox")), []
    for stack in (1, 8):
        metadata = file.metadata | {"clip.audio.projector.stack_factor": stack}
        runner = EncoderRunner(Stacked(metadata, Weights(weights_of(file))), backend("cpu", threads=1))
        found += rows(runner, 0)
        runner.close()
    assert found[0].shape == (ROWS, sound_models.WIDTH) and len(found[1]) == 188
    assert np.abs(np.pad(found[0], ((0, 4), (0, 0))).reshape(188, -1) - found[1]).max() < 1e-5


def test_bits_do_not_depend_on_threads(mmproj: Callable[[str], Path]) -> None:
    file, found = open_model(mmproj("qwen2a")), []
    for threads in (1, 2):
        runner = EncoderRunner(encoder_of(file), backend("cpu", threads=threads))
        found.append(rows(runner, 1))
        runner.close()
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


def test_sounds_are_kept_by_their_contents(mmproj: Callable[[str], Path]) -> None:
    runner = EncoderRunner(encoder_of(open_model(mmproj("meralion"))), backend("cpu", threads=1))
    found = runner.encode(SOUNDS[0])
    assert runner.encode(sound.read_sound(SOUNDS[0].samples.copy())) is found
    assert runner.encode(SOUNDS[2]) is not found
    runner.close()


def test_files_that_are_no_encoders(mmproj: Callable[[str], Path], files: Callable[[str], Path]) -> None:
    with pytest.raises(UnsupportedModel, match="an mmproj file has 'clip'"):
        encoder_of(open_model(files("llama-dense")))
    with pytest.raises(UnsupportedModel, match="sounds are encoded for glma"):
        encoder_of(open_model(mmproj("llava")))
    file = open_model(mmproj("ultravox"))
    weights = weights_of(file)
    for key, value, error in (
        ("clip.projector_type", "nobody", "projector 'nobody'"),
        ("clip.has_audio_encoder", False, "the projector 'ultravox'"),
        ("clip.audio.projector.stack_factor", 1501, "at most 1500"),
    ):
        with pytest.raises(UnsupportedModel, match=error):
            sound.build(file.metadata | {key: value}, weights)
    with pytest.raises(ModelFileError, match="num_mel_bins is 0"):
        sound.build(file.metadata | {"clip.audio.num_mel_bins": 0}, weights)
    for name, shape, error in (
        ("a.conv1d.2.weight", (32, 32, 5), r"\[32, 32, 3\] is expected"),
        ("a.conv1d.1.weight", (32, 80, 3), r"\[32, 128, 3\]"),
        ("a.position_embd.weight", (100, 32), "1500"),
    ):
        with pytest.raises(UnsupportedModel, match=error):
            sound.build(file.metadata, weights | {name: constant(name, np.zeros(shape))})
    with pytest.raises(UnsupportedModel, match=r"no tensor a\.conv1d\.1\.bias"):
        sound.build(file.metadata, {name: w for name, w in weights.items() if name != "a.conv1d.1.bias"})
