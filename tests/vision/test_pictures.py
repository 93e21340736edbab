"""Reading pictures: every format from every source, and limits as errors."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from llamina.errors import InvalidPicture
from llamina.vision import Limits, file_url, read_picture
from llamina.vision.resize import fit, stretch, whole_size
from llamina.vision.tiles import best_resolution, cut

PIXELS = np.random.default_rng(3).integers(0, 255, (7, 11, 3), dtype=np.uint8)
LOSSLESS = {"PNG": {}, "BMP": {}, "WEBP": {"lossless": True}}


def packed(format: str, pixels: np.ndarray = PIXELS, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize("format", LOSSLESS)
def test_every_source_gives_the_same_picture(format: str, tmp_path: Path) -> None:
    data = packed(format, **LOSSLESS[format])
    path = tmp_path / "picture"
    path.write_bytes(data)
    url = f"data:image/{format.lower()};base64,{base64.b64encode(data).decode()}"
    sources = [data, bytearray(data), path, str(path), url, PIXELS, Image.fromarray(PIXELS), read_picture(data)]
    found = [read_picture(source) for source in sources]
    assert all(np.array_equal(picture.pixels, PIXELS) for picture in found)
    assert {picture.key for picture in found} == {found[0].key}
    assert (found[0].width, found[0].height) == (11, 7)
    assert found[0].key != read_picture(np.swapaxes(PIXELS, 0, 1)).key


def test_lossy_formats_and_other_colours() -> None:
    smooth = np.full((16, 16, 3), (200, 40, 90), np.uint8)
    assert np.abs(read_picture(packed("JPEG", smooth)).pixels.astype(int) - smooth).max() < 6
    assert read_picture(packed("GIF")).pixels.shape == PIXELS.shape
    grey = PIXELS[..., 0]
    assert np.array_equal(read_picture(packed("PNG", grey)).pixels, grey[..., None].repeat(3, 2))
    assert np.array_equal(read_picture(grey).pixels, grey[..., None].repeat(3, 2))
    clear = np.dstack([PIXELS, np.full((7, 11), 9, np.uint8)])
    assert np.array_equal(read_picture(packed("PNG", clear)).pixels, PIXELS)
    assert np.array_equal(read_picture(clear).pixels, PIXELS)
    deep = grey.astype(np.uint16) * 257
    assert np.array_equal(read_picture(packed("PNG", deep)).pixels, grey[..., None].repeat(3, 2))


def test_a_picture_stands_upright() -> None:
    turned = Image.fromarray(PIXELS)
    exif = turned.getexif()
    exif[0x0112] = 3  # half a turn
    file = io.BytesIO()
    turned.save(file, "PNG", exif=exif)
    assert np.array_equal(read_picture(file.getvalue()).pixels, PIXELS[::-1, ::-1])
    with Image.open(file) as opened:
        assert np.array_equal(read_picture(opened).pixels, PIXELS[::-1, ::-1])
        assert opened.getexif()[0x0112] == 3  # the caller's own is as it was


def test_the_first_picture_of_a_phones_jpeg() -> None:
    """An MPO is a JPEG with a second one behind it, a preview or another view."""
    smooth, file = np.full((16, 24, 3), (200, 40, 90), np.uint8), io.BytesIO()
    other = Image.fromarray(np.zeros((8, 8, 3), np.uint8))
    Image.fromarray(smooth).save(file, "MPO", save_all=True, append_images=[other])
    with Image.open(file) as opened:
        assert opened.n_frames == 2  # type: ignore[attr-defined]
    assert np.array_equal(read_picture(file.getvalue()).pixels, read_picture(packed("JPEG", smooth)).pixels)
    assert file_url(file.getvalue()).startswith("data:image/jpeg;base64,")


def test_pil_images_that_are_none() -> None:
    cut_off = Image.open(io.BytesIO(packed("PNG")[:-40]))
    with pytest.raises(InvalidPicture, match="damaged"):
        read_picture(cut_off)
    for value in (np.nan, np.inf):
        with pytest.raises(InvalidPicture, match="all must be finite"):
            read_picture(Image.fromarray(np.full((2, 2), value, np.float32)))
    assert read_picture(Image.fromarray(np.full((2, 2), 7.0, np.float32))).pixels.max() == 7


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "none of PNG"),
        (b"hello", "none of PNG"),
        ("data:image/png;base64,@@@", "not base64"),
        ("data:image/png;base64", "no data"),
        ("https://example.org/cat.png", "web address"),
        ("/nowhere/cat.png", "cannot be read"),
        ("nul\0l", "cannot be read"),
        (7, "picture is int"),
        (np.zeros((2, 2, 5), np.uint8), "shape"),
        (np.zeros((0, 2), np.uint8), "at least one"),
        (np.zeros((2, 2), np.float32), "float32"),
    ],
    ids=str,
)
def test_what_is_no_picture(source: object, message: str) -> None:
    with pytest.raises(InvalidPicture, match=message):
        read_picture(source)


def test_limits_are_errors(tmp_path: Path) -> None:
    data, path = packed("PNG"), tmp_path / "large.png"
    for limits, message in (
        (Limits(nbytes=10), "bytes: 10 are the most"),
        (Limits(pixels=76), "11 x 7 pixels: 76 are the most"),
    ):
        with pytest.raises(InvalidPicture, match=message):
            read_picture(data, limits)
    with pytest.raises(InvalidPicture, match="bytes: 10 are the most"):
        read_picture("data:image/png;base64," + base64.b64encode(data).decode(), Limits(nbytes=10))
    path.write_bytes(bytes(1000))
    with pytest.raises(InvalidPicture, match="has 1000 bytes: 10 are the most"):
        read_picture(path, Limits(nbytes=10))
    with pytest.raises(InvalidPicture, match="pixels"):
        read_picture(PIXELS, Limits(pixels=76))
    frames = [Image.fromarray(np.full((4, 4), i * 60, np.uint8)) for i in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(InvalidPicture, match="3 frames"):
        read_picture(file.getvalue())
    assert read_picture(file.getvalue(), Limits(frames=3)).width == 4


def test_resizing() -> None:
    assert stretch(PIXELS, (11, 7), "bicubic") is PIXELS
    assert stretch(PIXELS, (5, 9), "bilinear").shape == (9, 5, 3)
    padded = fit(PIXELS, (22, 22), "lanczos", (1, 2, 3))
    assert (padded[:4] == (1, 2, 3)).all() and (padded[-4:] == (1, 2, 3)).all()
    assert np.array_equal(padded[4:18], stretch(PIXELS, (22, 14), "lanczos"))
    assert whole_size((97, 61), 28, 0, 1 << 20) == (84, 56)
    assert whole_size((1000, 500), 28, 0, 28 * 28 * 8) == (112, 56)
    assert whole_size((10, 10), 28, 28 * 28 * 8, 1 << 20) == (84, 84)
    assert best_resolution((300, 200), [(56, 112), (112, 56), (112, 112), (168, 56)]) == (112, 112)
    tiles = cut(np.resize(PIXELS, (4, 6, 3)), 2)
    assert [len(row) for row in tiles] == [3, 3] and tiles[1][2].shape == (2, 2, 3)
