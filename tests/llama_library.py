"""llama.cpp itself, by the C functions that xllamacpp's library exports, or a library that $LLAMA_LIBRARY names."""

import ctypes
import os
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_void_p
from typing import Any

from skips import import_peer

QUIET = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)(lambda *_: None)  # kept: llama.cpp holds its address


class ModelParams(ctypes.Structure):
    """`struct llama_model_params`, and room for fields that come later."""

    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int32),
        ("load_mode", c_int32),
        ("lazy_mode", c_int32),
        ("main_gpu", c_int32),
        ("tensor_split", POINTER(c_float)),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
    )


def library() -> Any:
    """The shared library, its loading of models declared; the test skips without xllamacpp."""
    library = ctypes.CDLL(os.environ.get("LLAMA_LIBRARY") or _xllamacpp())
    library.llama_model_default_params.restype = ModelParams
    library.llama_model_load_from_file.argtypes = (c_char_p, ModelParams)
    library.llama_model_load_from_file.restype = c_void_p
    library.llama_model_get_vocab.argtypes = (c_void_p,)
    library.llama_model_get_vocab.restype = c_void_p
    library.llama_log_set(QUIET, None)
    library.llama_backend_init()
    return library


def _xllamacpp() -> str:
    folder = os.path.dirname(import_peer("xllamacpp").__file__)
    name = next(name for name in os.listdir(folder) if name.startswith("xllamacpp") and name.endswith(".so"))
    return os.path.join(folder, name)


def load(library: Any, path: str, vocab_only: bool = False) -> int:
    """A model's handle."""
    params = library.llama_model_default_params()
    params.vocab_only = vocab_only
    params.n_gpu_layers = 0
    model = library.llama_model_load_from_file(os.fsencode(path), params)
    assert model, f"llama.cpp cannot load {path}"
    return int(model)
