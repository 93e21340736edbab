"""llama.cpp computing a file's logits, through the C functions that xllamacpp's library exports."""

import ctypes
import os
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int8, c_int32, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skips import import_peer

ROOM = 1024  # bytes, more than any version of the parameters takes


class _Parameters(Structure):
    """Defaults that llama.cpp fills in, and we hand back."""

    _fields_ = (("words", c_uint32 * (ROOM // 4)),)


class _Batch(Structure):
    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    )


def _library() -> Any:
    xllamacpp = import_peer("xllamacpp")
    folder = os.path.dirname(xllamacpp.__file__)
    name = next(name for name in os.listdir(folder) if name.startswith("xllamacpp") and name.endswith(".so"))
    c = ctypes.CDLL(os.path.join(folder, name))
    c.llama_model_default_params.restype = c.llama_context_default_params.restype = _Parameters
    c.llama_model_load_from_file.argtypes = (c_char_p, _Parameters)
    c.llama_init_from_model.argtypes = (c_void_p, _Parameters)
    c.llama_batch_init.argtypes, c.llama_batch_init.restype = (c_int32, c_int32, c_int32), _Batch
    c.llama_decode.argtypes = c.llama_encode.argtypes = (c_void_p, _Batch)
    c.llama_set_embeddings.argtypes = (c_void_p, c_bool)
    for function in ("model_load_from_file", "init_from_model", "model_get_vocab"):
        getattr(c, f"llama_{function}").restype = c_void_p
    for function in ("get_logits_ith", "get_embeddings_ith"):
        getattr(c, f"llama_{function}").argtypes = (c_void_p, c_int32)
        getattr(c, f"llama_{function}").restype = POINTER(c_float)
    for function in ("model_free", "free", "model_get_vocab", "vocab_n_tokens", "model_n_embd"):
        getattr(c, f"llama_{function}").argtypes = (c_void_p,)
    return c


class Peer:
    """A model in llama.cpp; the test skips without xllamacpp."""

    def __init__(self, path: Path, context: int = 256) -> None:
        self._c = _library()
        self._quiet = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)(lambda *_: None)
        self._c.llama_log_set(self._quiet, None)
        self._c.llama_backend_init()
        self._model = self._c.llama_model_load_from_file(os.fsencode(path), self._c.llama_model_default_params())
        assert self._model, f"llama.cpp cannot load {path}"
        parameters = self._c.llama_context_default_params()
        parameters.words[0] = context
        self._context = self._c.llama_init_from_model(self._model, parameters)
        assert self._context, f"llama.cpp cannot run {path}"

    def logits(self, tokens: list[int]) -> npt.NDArray[np.float32]:
        """One row per token."""
        assert self._c.llama_decode(self._context, self._batch(tokens)) == 0
        width = self._c.llama_vocab_n_tokens(self._c.llama_model_get_vocab(self._model))
        return self._rows(self._c.llama_get_logits_ith, len(tokens), width)

    def hidden(self, tokens: list[int]) -> npt.NDArray[np.float32]:
        """An encoder's last hidden state, one row per token."""
        self._c.llama_set_embeddings(self._context, True)
        assert self._c.llama_encode(self._context, self._batch(tokens)) == 0
        return self._rows(self._c.llama_get_embeddings_ith, len(tokens), self._c.llama_model_n_embd(self._model))

    def _batch(self, tokens: list[int]) -> _Batch:
        batch = self._c.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        return batch

    def _rows(self, row: Any, count: int, width: int) -> npt.NDArray[np.float32]:
        return np.stack([np.ctypeslib.as_array(row(self._context, i), (width,)).copy() for i in range(count)])

    def close(self) -> None:
        self._c.llama_free(self._context)
        self._c.llama_model_free(self._model)
