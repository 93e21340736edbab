"""What llama.cpp's libmtmd makes of pictures: rows, and logits after them, by the functions that xllamacpp exports."""

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_bool, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_void_p
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from llama_library import QUIET, library, load
from skips import skip

MARKER = "<__media__>"
TRIES = 5
Found = TypeVar("Found", bound=Iterable[Any])
Rows = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]


class _ContextParams(ctypes.Structure):
    """The head of `struct llama_context_params`, and room for the rest."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("between", c_uint32 * 10),
        ("flash_attn_type", c_int32),
        ("rest", c_uint8 * 456),
    )


class _VisionParams(ctypes.Structure):
    """The head of `struct mtmd_context_params`, and room for the rest."""

    _fields_ = (
        ("use_gpu", c_bool),
        ("device", c_void_p),
        ("print_timings", c_bool),
        ("n_threads", c_int32),
        ("image_marker", c_char_p),
        ("media_marker", c_char_p),
        ("flash_attn_type", c_int32),
        ("warmup", c_bool),
        ("image_min_tokens", c_int32),
        ("image_max_tokens", c_int32),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("rest", c_uint8 * 200),
    )


class _Tensor(ctypes.Structure):
    """The head of `struct ggml_tensor`."""

    _fields_ = (
        ("type", c_int32),
        ("buffer", c_void_p),
        ("ne", c_int64 * 4),
        ("nb", c_size_t * 4),
        ("op", c_int32),
        ("op_params", c_int32 * 16),
        ("flags", c_int32),
        ("src", c_void_p * 10),
        ("view_src", c_void_p),
        ("view_offs", c_size_t),
        ("data", c_void_p),
        ("name", ctypes.c_char * 64),
    )


_Watch = ctypes.CFUNCTYPE(c_bool, c_void_p, c_bool, c_void_p)


class _Text(ctypes.Structure):
    """`struct mtmd_input_text`."""

    _fields_ = (("text", c_char_p), ("text_len", c_size_t), ("add_special", c_bool), ("parse_special", c_bool))


def declared() -> Any:
    """llama.cpp, its functions for pictures and sounds declared."""
    c = library()
    c.llama_context_default_params.restype = _ContextParams
    c.mtmd_context_params_default.restype = _VisionParams
    for name, result, *arguments in (
        ("llama_init_from_model", c_void_p, c_void_p, _ContextParams),
        ("llama_get_logits_ith", POINTER(c_float), c_void_p, c_int32),
        ("llama_vocab_n_tokens", c_int32, c_void_p),
        ("llama_free", None, c_void_p),
        ("llama_model_free", None, c_void_p),
        ("mtmd_log_set", None, c_void_p, c_void_p),
        ("mtmd_init_from_file", c_void_p, c_char_p, c_void_p, _VisionParams),
        ("mtmd_free", None, c_void_p),
        ("mtmd_bitmap_init", c_void_p, c_uint32, c_uint32, c_void_p),
        ("mtmd_bitmap_init_from_audio", c_void_p, c_size_t, c_void_p),
        ("mtmd_bitmap_free", None, c_void_p),
        ("mtmd_input_chunks_init", c_void_p),
        ("mtmd_input_chunks_free", None, c_void_p),
        ("mtmd_input_chunks_size", c_size_t, c_void_p),
        ("mtmd_input_chunks_get", c_void_p, c_void_p, c_size_t),
        ("mtmd_input_chunk_get_type", c_int32, c_void_p),
        ("mtmd_input_chunk_get_n_tokens", c_size_t, c_void_p),
        ("mtmd_encode_chunk", c_int32, c_void_p, c_void_p),
        ("mtmd_get_output_embd", POINTER(c_float), c_void_p),
        ("mtmd_tokenize", c_int32, c_void_p, c_void_p, POINTER(_Text), POINTER(c_void_p), c_size_t),
        (
            "mtmd_helper_eval_chunks",
            c_int32,
            *(c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_int32, c_bool, POINTER(c_int32)),
        ),
    ):
        function = getattr(c, str(name))
        function.restype, function.argtypes = result, arguments
    c.mtmd_log_set(QUIET, None)
    return c


def context(c: Any, model: int, mmproj: Path, watch: Any = None, flash: int = -1) -> int:
    """The handle of an encoder; `watch` is called before and after each step of its graph; `flash` is llama.cpp's."""
    params = c.mtmd_context_params_default()
    params.use_gpu, params.print_timings, params.n_threads, params.warmup = False, False, 2, False
    params.cb_eval, params.flash_attn_type = ctypes.cast(watch, c_void_p) if watch else None, flash
    encoder = c.mtmd_init_from_file(os.fsencode(mmproj), model, params)
    assert encoder, f"llama.cpp cannot load {mmproj}"
    return int(encoder)


@contextmanager
def tokenized(
    path: Path, mmproj: Path, text: str, pictures: list[Pixels], watch: Any = None, flash: int = -1
) -> Iterator[tuple[Any, int, int, int]]:
    """llama.cpp, the model, the encoder, and the chunks of a text with markers in it; `watch` as `context` takes it."""
    c = declared()
    model = load(c, str(path))
    encoder = context(c, model, mmproj, watch, flash)
    arrays = [np.ascontiguousarray(pixels) for pixels in pictures]
    bitmaps = [
        c.mtmd_bitmap_init(x.shape[1], x.shape[0], x.ctypes.data)
        if x.ndim == 3
        else c.mtmd_bitmap_init_from_audio(len(x), x.ctypes.data)
        for x in arrays
    ]
    chunks = c.mtmd_input_chunks_init()
    data = text.encode()
    given = _Text(data, len(data), False, True)
    assert c.mtmd_tokenize(encoder, chunks, byref(given), (c_void_p * len(bitmaps))(*bitmaps), len(bitmaps)) == 0
    yield c, model, encoder, chunks
    c.mtmd_input_chunks_free(chunks)
    for bitmap in bitmaps:
        c.mtmd_bitmap_free(bitmap)
    c.mtmd_free(encoder)
    c.llama_model_free(model)


def finite(compute: Callable[[], Found]) -> Found:
    """What llama.cpp computes, again if it is NaN: some of its encoders read memory that they have not written."""
    for _ in range(TRIES):
        found = compute()
        if all(np.isfinite(part).all() for part in found):
            return found
    skip("peer", "llama.cpp reads memory that it has not written, and its numbers are NaN this time")


def rows_of(path: Path, mmproj: Path, pixels: Pixels, width: int) -> list[Rows]:
    """The rows of each tile of a picture, in the order of the prompt, of so many numbers each."""
    with tokenized(path, mmproj, MARKER, [pixels]) as (c, _, encoder, chunks):
        found = []
        for i in range(c.mtmd_input_chunks_size(chunks)):
            chunk = c.mtmd_input_chunks_get(chunks, i)
            if c.mtmd_input_chunk_get_type(chunk) == 0:  # text
                continue
            assert c.mtmd_encode_chunk(encoder, chunk) == 0
            n = c.mtmd_input_chunk_get_n_tokens(chunk)
            found.append(np.ctypeslib.as_array(c.mtmd_get_output_embd(encoder), (n, width)).copy())
        return found


def tiles_of(path: Path, mmproj: Path, pixels: Pixels) -> list[Rows]:
    """What the encoder is shown of a picture, normalised: [height, width, 3] for each tile, in the prompt's order."""
    seen: list[Rows] = []

    def watch(step: int, ask: bool, _: object) -> bool:
        for address in _Tensor.from_address(step).src if ask else ():
            tensor = _Tensor.from_address(address) if address else None
            if tensor is not None and tensor.name == b"inp_raw":
                shape = (tensor.ne[2], tensor.ne[1], tensor.ne[0])
                values = np.ctypeslib.as_array(ctypes.cast(tensor.data, POINTER(c_float)), shape)
                seen.append(values.transpose(1, 2, 0).copy())
        return False

    with tokenized(path, mmproj, MARKER, [pixels], _Watch(watch)) as (c, _, encoder, chunks):
        found = []
        for i in range(c.mtmd_input_chunks_size(chunks)):
            chunk = c.mtmd_input_chunks_get(chunks, i)
            if c.mtmd_input_chunk_get_type(chunk) == 1:
                seen.clear()
                assert c.mtmd_encode_chunk(encoder, chunk) == 0
                found.append(seen[0])
        return found


def logits_after(path: Path, mmproj: Path, text: str, pictures: list[Pixels]) -> tuple[Rows, int]:
    """The logits after a text with a marker for each picture, and the position after it."""
    with tokenized(path, mmproj, text, pictures) as (c, model, encoder, chunks):
        params = c.llama_context_default_params()
        params.n_ctx, params.flash_attn_type = 1024, 0  # flash attention sums in half precision
        run = c.llama_init_from_model(model, params)
        assert run, f"llama.cpp cannot run {path}"
        position = c_int32()
        assert c.mtmd_helper_eval_chunks(encoder, run, chunks, 0, 0, 512, True, byref(position)) == 0
        vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(model))
        found = np.ctypeslib.as_array(c.llama_get_logits_ith(run, -1), (vocab,)).copy()
        c.llama_free(run)
        return found, position.value
