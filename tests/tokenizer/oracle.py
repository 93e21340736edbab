"""llama.cpp itself, through the C functions that xllamacpp's library exports."""

import ctypes
import os
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_void_p
from typing import Any


class _ModelParams(ctypes.Structure):
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


def _library() -> Any:
    import xllamacpp

    folder = os.path.dirname(xllamacpp.__file__)
    name = next(name for name in os.listdir(folder) if name.startswith("xllamacpp") and name.endswith(".so"))
    library = ctypes.CDLL(os.path.join(folder, name))
    library.llama_model_default_params.restype = _ModelParams
    library.llama_model_load_from_file.argtypes = (c_char_p, _ModelParams)
    library.llama_model_load_from_file.restype = c_void_p
    library.llama_model_get_vocab.argtypes = (c_void_p,)
    library.llama_model_get_vocab.restype = c_void_p
    library.llama_tokenize.argtypes = (c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool)
    library.llama_detokenize.argtypes = (
        c_void_p,
        POINTER(c_int32),
        c_int32,
        c_char_p,
        c_int32,
        c_bool,
        c_bool,
    )
    library.llama_token_to_piece.argtypes = (c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool)
    for name in ("is_eog", "is_control"):
        function = getattr(library, f"llama_vocab_{name}")
        function.argtypes, function.restype = (c_void_p, c_int32), c_bool
    for name in ("bos", "eos", "eot", "n_tokens", "get_add_bos", "get_add_eos"):
        getattr(library, f"llama_vocab_{name}").argtypes = (c_void_p,)
    library.llama_vocab_get_attr.argtypes = (c_void_p, c_int32)
    return library


class Oracle:
    """A vocabulary as llama.cpp reads it."""

    def __init__(self, path: str) -> None:
        self._c = _library()
        self._quiet = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)(lambda *_: None)
        self._c.llama_log_set(self._quiet, None)
        self._c.llama_backend_init()
        params = self._c.llama_model_default_params()
        params.vocab_only = True
        params.n_gpu_layers = 0
        model = self._c.llama_model_load_from_file(os.fsencode(path), params)
        assert model, f"llama.cpp cannot load {path}"
        self._vocab = self._c.llama_model_get_vocab(model)

    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        data = text.encode()
        room = len(data) * 4 + 16
        ids = (c_int32 * room)()
        n = self._c.llama_tokenize(self._vocab, data, len(data), ids, room, add_special, parse_special)
        assert n >= 0
        return list(ids[:n])

    def decode(self, ids: list[int], special: bool) -> bytes:
        array = (c_int32 * len(ids))(*ids)
        room = 64 + sum(len(self.piece(token)) for token in ids)
        text = ctypes.create_string_buffer(room)
        n = self._c.llama_detokenize(self._vocab, array, len(ids), text, room, False, special)
        assert n >= 0
        return text.raw[:n]

    def piece(self, token: int) -> bytes:
        text = ctypes.create_string_buffer(1024)
        n = self._c.llama_token_to_piece(self._vocab, token, text, 1024, 0, True)
        return text.raw[:n]

    def number(self, name: str) -> int:
        return int(getattr(self._c, f"llama_vocab_{name}")(self._vocab))

    def attr(self, token: int) -> int:
        return int(self._c.llama_vocab_get_attr(self._vocab, token))

    def eog(self) -> set[int]:
        return {t for t in range(self.number("n_tokens")) if self._c.llama_vocab_is_eog(self._vocab, t)}
