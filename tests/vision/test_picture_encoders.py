"""Encoders of every family, against what llama.cpp's libmtmd makes of the same pictures with the same files."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golden import vision_models
from golden_facts import GOLDEN
from llamina import vision
from llamina.backends import backend
from llamina.engine.runner.load import weights_of
from llamina.errors import InvalidPicture, ModelFileError, UnsupportedModel
from llamina.gguf import GGUF, open_model
from llamina.media.runner import LEAST
from llamina.ops import constant
from llamina.vision import LIMITS, Encoder, EncoderRunner, Rows, read_picture

DEEP = ("qwen3vl",)  # whose text models get more than embeddings: twice as much
PICTURES = list(vision_models.pictures())


def encoder_of(file: GGUF) -> Encoder:
    return vision.build(file.metadata, weights_of(file))


@pytest.fixture(params=["reference", "cpu"])
def running(request: pytest.FixtureRequest, mmproj: Callable[..., Path]) -> Iterator[Callable[[str], EncoderRunner]]:
    made: list[EncoderRunner] = []

    def run(family: str) -> EncoderRunner:
        file = open_model(mmproj(family, vision_models.WIDTHS.get(family, vision_models.TEXT)))
        made.append(EncoderRunner(encoder_of(file), backend(request.param)))
        return made[-1]

    yield run
    for runner in made:
        runner.close()


@pytest.mark.parametrize("family", vision_models.FAMILIES)
def test_rows_are_llama_cpps(
    family: str, running: Callable[[str], EncoderRunner], golden: Callable[[str], Path]
) -> None:
    runner, facts = running(family), {}
    for file in ("vision.npz", "vision_more.npz"):
        facts |= np.load(golden(file))
    assert runner.width == vision_models.WIDTHS.get(family, vision_models.TEXT) * (2 if family in DEEP else 1)
    for k, pixels in enumerate(vision_models.pictures_for(family)):
        got = [part for part in runner.encode(read_picture(pixels)).parts if isinstance(part, Rows)]
        names = [name for j in range(len(got) + 1) if (name := f"{family}.{k}.{j}") in facts]
        assert len(got) == len(names)
        tiles = [part for part in runner.encoder.parts(read_picture(pixels)) if not isinstance(part, str)]
        least = [runner.encoder.least_rows_of(tile) for tile in tiles]
        assert all(0 < n <= len(rows.values) for n, rows in zip(least, got, strict=True))
        for rows, name in zip(got, names, strict=True):
            want = facts[name]
            assert rows.values.shape == want.shape
            breaks = rows.grid[1] - 1 if family in ("pixtral", "mistral3") else 2 if family == "cogvlm" else 0
            assert rows.grid[0] * rows.grid[1] + breaks == len(want)
            assert np.sum(np.square(rows.values - want)) / np.sum(np.square(want)) < 1e-5, name


@pytest.mark.parametrize("family", vision_models.FAMILIES)
def test_tiles_are_llama_cpps(family: str, mmproj: Callable[..., Path]) -> None:
    """What encoders are shown, within one unit of 255."""
    encoder = encoder_of(open_model(mmproj(family, vision_models.WIDTHS.get(family, vision_models.TEXT))))
    facts = np.load(GOLDEN / "vision_tiles.npz")
    for k, pixels in enumerate(vision_models.pictures_for(family)):
        tiles = [part for part in encoder.parts(read_picture(pixels)) if not isinstance(part, str)]
        names = [name for j in range(len(tiles) + 1) if (name := f"{family}.{k}.{j}") in facts]
        assert [tile.shape for tile in tiles] == [tuple(facts[f"{name}.size"]) for name in names]
        for tile, name in zip(tiles, names, strict=True):
            assert np.abs(tile[::2, ::2].astype(int) - facts[name]).max() <= 1


@pytest.mark.parametrize("family", ["llava16", "idefics3"])
def test_tiles_are_those_of_transformers(family: str, mmproj: Callable[[str], Path]) -> None:
    """Where the processor does as llama.cpp: within two units, as Pillow may resize columns before rows."""
    encoder, facts = encoder_of(open_model(mmproj(family))), np.load(GOLDEN / "vision_processors.npz")
    for k, pixels in enumerate(PICTURES):
        tiles = [part for part in encoder.parts(read_picture(pixels)) if not isinstance(part, str)]
        want = facts[f"{family}.{k}"].astype(int)
        want = np.roll(want, -1, axis=0) if family == "llava16" else want  # the overview is last here
        assert np.abs(np.stack(tiles)[:, ::2, ::2] - want).max() <= 2


def test_texts_around_tiles(mmproj: Callable[..., Path]) -> None:
    def texts(family: str, k: int) -> list[str]:
        encoder = encoder_of(open_model(mmproj(family, vision_models.WIDTHS.get(family, vision_models.TEXT))))
        parts = encoder.parts(read_picture(list(vision_models.pictures_for(family))[k]))
        return [part if isinstance(part, str) else "*" for part in parts]

    around = "<fake_token_around_image>"
    assert texts("llava", 0) == texts("janus_pro", 0) == ["*"]
    assert texts("pixtral", 0) == ["*", "[IMG_END]"]
    assert texts("llama4", 1) == ["<|image_start|>", *"****", "<|image_end|>"]
    assert texts("llava16", 1) == ["*"] * 3
    assert texts("qwen2vl", 0) == ["<|vision_start|>", "*", "<|vision_end|>"]
    assert texts("gemma3", 0) == ["<start_of_image>", "*", "<end_of_image>"]
    assert texts("internvl", 1) == ["<img>", *"****", "</img>"]
    assert texts("gemma4v", 0) == ["<|image>", "*", "<image|>"]
    assert texts("cogvlm", 0) == texts("ldp", 0) == ["*"]
    assert texts("lfm2", 0) == ["<|image_start|>", "*", "<|image_end|>"]
    slices = "\n".join(["<slice>*</slice>"] * 3)
    assert "".join(texts("minicpmv", 1)) == f"<image>*</image>{slices}"
    file = open_model(mmproj("minicpmv", 256))
    first = vision.build(file.metadata | {"clip.minicpmv_version": 2}, weights_of(file)).parts(
        read_picture(PICTURES[1])
    )
    slices = "\n".join(["<image>*</image>"] * 3)
    shown = "".join(part if isinstance(part, str) else "*" for part in first)
    assert shown == f"<image>*</image><slice>{slices}</slice>"
    with pytest.raises(UnsupportedModel, match="minicpmv_version is 7"):
        vision.build(file.metadata | {"clip.minicpmv_version": 7}, weights_of(file))
    assert texts("lfm2", 3)[1:5] == ["<|img_row_1_col_1|>", "*", "<|img_row_1_col_2|>", "*"]
    assert texts("lfm2", 3)[5:] == ["<|img_thumbnail|>", "*", "<|image_end|>"]
    tiles = [f"{around}<row_1_col_1>", "*", "\n", f"{around}<row_2_col_1>", "*"]
    assert texts("idefics3", 1) == [*tiles, f"\n\n{around}<global-img>", "*", around]


def test_the_program_grows_and_bits_do_not_change(mmproj: Callable[[str], Path]) -> None:
    """A picture of more patches than there was room for is compiled for; smaller ones then have the same bits."""
    file = open_model(mmproj("qwen2vl"))
    small, large = (read_picture(np.resize(PICTURES[2], (n, n, 3))) for n in (90, 500))
    alone, other = (EncoderRunner(encoder_of(file), backend("cpu", threads=n)) for n in (1, 2))
    grown = other.encode(large).parts[1]
    assert isinstance(grown, Rows) and 4 * len(grown.values) > LEAST
    for first, second in zip(alone.encode(small).parts, other.encode(small).parts, strict=True):
        assert first == second or np.array_equal(first.values, second.values)  # type: ignore[union-attr]
    alone.close()
    other.close()


@pytest.mark.parametrize("family", ["ldp", "minicpmv"])
def test_bits_do_not_depend_on_threads(family: str, mmproj: Callable[..., Path]) -> None:
    """Nor on how much room there is: these have rows beside those of patches, and convolutions along them."""
    file = open_model(mmproj(family, 256))
    alone, other = (EncoderRunner(encoder_of(file), backend("cpu", threads=n)) for n in (1, 2))
    other._whole._ready(2048)
    found = [runner.encode(read_picture(PICTURES[0])).parts for runner in (alone, other)]
    for first, second in zip(*found, strict=True):
        assert first == second or np.array_equal(first.values, second.values)  # type: ignore[union-attr]
    alone.close()
    other.close()


def test_pictures_are_kept_by_their_contents(mmproj: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    runner = EncoderRunner(encoder_of(open_model(mmproj("gemma3"))), backend("reference"))
    first, second = (read_picture(pixels) for pixels in PICTURES[:2])
    found = runner.encode(first)
    assert runner.encode(read_picture(PICTURES[0].copy())) is found
    assert runner.encode(second) is not found
    monkeypatch.setattr("llamina.media.runner.KEPT", 1)
    runner.encode(read_picture(PICTURES[2]))
    assert runner.encode(first) is not found


def test_files_that_are_no_encoders(mmproj: Callable[[str], Path], files: Callable[[str], Path]) -> None:
    with pytest.raises(UnsupportedModel, match="an mmproj file has 'clip'"):
        encoder_of(open_model(files("llama-dense")))
    file = open_model(mmproj("llava"))
    for key, value, error in (
        ("clip.projector_type", "nobody", "projector 'nobody'"),
        ("clip.has_vision_encoder", False, "the projector 'mlp'"),
        ("clip.vision.image_mean", [0.5], "three numbers"),
        ("clip.vision.image_grid_pinpoints", [57, 56], "multiples of 56"),
        ("clip.vision.image_size", 70, "do not match"),
        ("clip.vision.feature_layer", [1, 2], "several layers"),
    ):
        with pytest.raises(UnsupportedModel, match=error):
            vision.build(file.metadata | {key: value}, weights_of(file))
    with pytest.raises(ModelFileError, match="patch_size is 0"):
        vision.build(file.metadata | {"clip.vision.patch_size": 0}, weights_of(file))
    with pytest.raises(UnsupportedModel, match=r"no tensor v\.blk\.1\.ln2"):
        weights = {name: weight for name, weight in weights_of(file).items() if not name.startswith("v.blk.1.ln2")}
        EncoderRunner(vision.build(file.metadata, weights), backend("reference"))


def test_tiles_by_keys_of_llava_16(mmproj: Callable[[str], Path]) -> None:
    """`llava16.*` where `clip.vision.*` says nothing; at most so many tiles, of which the overview is one."""
    file, wide = open_model(mmproj("llava")), read_picture(PICTURES[2])
    grids = {"llava16.image_grid_pinpoints": [112, 56, 112, 112, 168, 112]}

    def count(**more: int) -> int:
        keys = grids | {f"llava16.{key}": value for key, value in more.items()}
        return len(vision.build(file.metadata | keys, weights_of(file)).parts(wide))

    assert len(encoder_of(file).parts(wide)) == 1
    assert [count(), count(max_tiles=6), count(max_tiles=3), count(tile_size=56)] == [7, 5, 3, 7]
    for key, value, error in (("tile_size", 336, "squares of 56"), ("max_tiles", 2, "has so few")):
        with pytest.raises(UnsupportedModel, match=error):
            count(**{key: value})
    own = {"clip.vision.image_grid_pinpoints": [56, 112]}
    assert len(vision.build(file.metadata | grids | own, weights_of(file)).parts(wide)) == 3


def test_swapped_names_of_old_converters(mmproj: Callable[[str], Path]) -> None:
    file = open_model(mmproj("llava"))
    weights = weights_of(file)
    swapped = dict(weights)
    for name in weights:
        if "ffn_up" in name:
            other = name.replace("ffn_up", "ffn_down")
            swapped[name], swapped[other] = replace(weights[other], name=name), replace(weights[name], name=other)
    picture = read_picture(PICTURES[0])
    rows = [
        EncoderRunner(vision.build(file.metadata, w), backend("reference")).encode(picture).parts[0]
        for w in (weights, swapped)
    ]
    assert np.array_equal(rows[0].values, rows[1].values)  # type: ignore[union-attr]


def test_norms_of_queries_and_keys(mmproj: Callable[[str], Path]) -> None:
    """Over a head or over all of them, where the file has such."""
    file, picture = open_model(mmproj("internvl")), read_picture(PICTURES[0][:56, :56])
    found = []
    for width in (8, 32):
        weights = weights_of(file)
        for name in [name for name in weights if name.endswith("ls1.weight")]:
            for part in ("attn_q_norm", "attn_k_norm"):
                norm = name.replace("ls1", part)
                weights[norm] = constant(norm, np.linspace(0.5, 1.5, width))
        runner = EncoderRunner(vision.build(file.metadata, weights), backend("reference"))
        found.append(runner.encode(picture).parts[1].values)  # type: ignore[union-attr]
    assert not np.allclose(found[0], found[1])


@pytest.mark.parametrize(("width", "height"), [(1, 3_000_000), (3_000_000, 1), (1, 1)])
def test_long_and_narrow_pictures(width: int, height: int, mmproj: Callable[..., Path]) -> None:
    """Tiles of a bounded size, or an error of ours; nothing grows beyond what a picture may be."""
    picture = read_picture(np.zeros((height, width, 3), np.uint8))
    for family in vision_models.FAMILIES:
        encoder = encoder_of(open_model(mmproj(family, vision_models.WIDTHS.get(family, vision_models.TEXT))))
        try:
            tiles = [part for part in encoder.parts(picture) if not isinstance(part, str)]
        except InvalidPicture as error:
            assert max(width, height) > 1 and "cut the picture" in str(error)
        else:
            assert tiles and sum(tile.size for tile in tiles) <= 3 * LIMITS.pixels
            assert all(len(encoder.patches(tile).outputs) > 0 for tile in tiles[:1])


def test_encoders_that_ask_for_too_much(mmproj: Callable[[str], Path]) -> None:
    file = open_model(mmproj("internvl"))
    with pytest.raises(UnsupportedModel, match="preproc_max_tiles"):
        vision.build(file.metadata | {"clip.vision.preproc_max_tiles": 1 << 20}, weights_of(file))
    file = open_model(mmproj("idefics3"))
    encoder = vision.build(file.metadata | {"clip.vision.preproc_image_size": 1 << 20}, weights_of(file))
    with pytest.raises(InvalidPicture, match="cut the picture"):
        encoder.parts(read_picture(PICTURES[0]))
