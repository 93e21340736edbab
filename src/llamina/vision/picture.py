"""Pictures as they come (a file, bytes, a `data:` URL, an array, a PIL image), checked against limits and made RGB."""

import base64
import binascii
import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import numpy as np
import numpy.typing as npt

from llamina.errors import InvalidPicture
from llamina.media.source import Source

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
SHAPES = "[height, width], or [height, width, 1, 3 or 4]"


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a picture may have: bytes as it is given, pixels and frames once it is unpacked."""

    nbytes: int = 32 << 20
    pixels: int = 64 << 20
    frames: int = 1


LIMITS = Limits()
SOURCE = Source("picture", InvalidPicture)


@dataclass(frozen=True, eq=False)
class Picture:
    """`pixels` [height, width, 3] of 0 to 255: red, green, blue."""

    pixels: Pixels

    @property
    def width(self) -> int:
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        return int(self.pixels.shape[0])

    @cached_property
    def key(self) -> str:
        """The same for the same contents."""
        found = hashlib.blake2b(f"{self.width}x{self.height}:".encode(), digest_size=16)
        found.update(self.pixels.tobytes())
        return found.hexdigest()


def read_picture(source: Any, limits: Limits = LIMITS) -> Picture:
    """The picture of a path, bytes, a `data:` URL, an array of 0 to 255, or a PIL image.

    Raises InvalidPicture for what is none, is damaged, or is larger than the limits. Web addresses are not fetched.
    """
    if isinstance(source, Picture):
        return source
    if isinstance(source, bytes | bytearray | memoryview):
        return _unpacked(bytes(source), limits)
    if isinstance(source, str) and source.startswith("data:"):
        return _unpacked(data_of(source, limits), limits)
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        raise InvalidPicture(f"{source[:80]} is a web address, which is not fetched: give the file, or a data: URL")
    if isinstance(source, str | os.PathLike):
        return _unpacked(SOURCE.contents(source, limits.nbytes), limits)
    if isinstance(source, np.ndarray):
        return _of_array(source, limits)
    if hasattr(source, "convert") and hasattr(source, "load"):
        with _decoding():
            return _upright(source, limits)
    raise InvalidPicture(
        f"a picture is {type(source).__name__}: a path, bytes, a data: URL, an array or a PIL image is expected"
    )


def data_of(url: str, limits: Limits = LIMITS) -> bytes:
    """What a `data:` URL holds. Raises InvalidPicture if it cannot be decoded, or holds more than may be."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:"):
        raise InvalidPicture("the data: URL has no data: it must be data:image/png;base64,… or alike")
    if len(body) > 4 * limits.nbytes:
        SOURCE.check(len(body) * 3 // 4, limits.nbytes)
    if not head.endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidPicture(f"the data: URL is not base64: {error}") from error


def data_url(source: Any) -> str:
    """A picture from any source as a `data:` URL. Raises InvalidPicture as `read_picture` does."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(read_picture(source).pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def file_url(data: bytes, limits: Limits = LIMITS) -> str:
    """A picture's file as a `data:` URL, byte for byte. Raises InvalidPicture for what is none, or too large."""
    with _opened(data, limits) as image:
        kind = str(image.format).replace("MPO", "JPEG").lower()
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()


def _unpacked(data: bytes, limits: Limits) -> Picture:
    with _opened(data, limits) as image:
        return _upright(image, limits)


@contextmanager
def _opened(data: bytes, limits: Limits) -> "Iterator[Image]":
    """A picture's file as Pillow recognises it, not decoded yet."""
    from PIL import Image

    SOURCE.check(len(data), limits.nbytes)
    with _decoding(), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        _check_size(*image.size, limits)
        # Behind the first picture of an MPO, a JPEG of several, are a preview of it or another view.
        frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
        if frames > limits.frames:
            most = f"{limits.frames} is the most" if limits.frames > 1 else "one is expected"
            raise InvalidPicture(f"the picture has {frames} frames: {most}")
        yield image


@contextmanager
def _decoding() -> Iterator[None]:
    """Raise InvalidPicture for whatever Pillow raises."""
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except InvalidPicture:
        raise
    except UnidentifiedImageError as error:
        raise InvalidPicture(f"the picture is none of {', '.join(FORMATS)}, or is damaged") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InvalidPicture(f"the picture is a decompression bomb: {error}") from error
    except Exception as error:  # Pillow's decoders raise almost anything for damaged data
        raise InvalidPicture(f"the picture is damaged: {error or type(error).__name__}") from error


def _upright(image: "Image", limits: Limits) -> Picture:
    """A PIL image as RGB, turned as its EXIF data says; transparency is dropped, and 16 bits of a channel become 8."""
    from PIL import ImageOps

    _check_size(*image.size, limits)
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        deep = np.asarray(image)
        if not np.isfinite(deep).all():
            raise InvalidPicture("the picture has pixels that are infinite or no number: all must be finite")
        most = 65535 if deep.max(initial=0) > 255 else 255
        return _of_array((np.clip(deep, 0, most) / (257 if most > 255 else 1)).astype(np.uint8), limits)
    return Picture(np.asarray(image.convert("RGB")))


def _of_array(array: npt.NDArray[Any], limits: Limits) -> Picture:
    shaped = array[..., None] if array.ndim == 2 else array
    if shaped.ndim != 3 or shaped.shape[2] not in (1, 3, 4):
        raise InvalidPicture(f"the array has the shape {list(array.shape)}: it must be {SHAPES}")
    if array.dtype != np.uint8:
        raise InvalidPicture(f"the array is of {array.dtype}: it must be of uint8, from 0 to 255")
    _check_size(shaped.shape[1], shaped.shape[0], limits)
    colours = np.broadcast_to(shaped, (*shaped.shape[:2], 3)) if shaped.shape[2] == 1 else shaped[..., :3]
    return Picture(np.ascontiguousarray(colours))


def _check_size(width: int, height: int, limits: Limits) -> None:
    if width < 1 or height < 1:
        raise InvalidPicture(f"the picture has {width} x {height} pixels: at least one is needed")
    if width * height > limits.pixels:
        raise InvalidPicture(f"the picture has {width} x {height} pixels: {limits.pixels} are the most")
