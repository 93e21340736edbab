"""A vocabulary as llama.cpp itself reads it."""

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_void_p
from typing import Any

from llama_library import library, load


def _library() -> Any:
    functions = library()
    functions.llama_tokenize.argtypes = (c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool)
    functions.llama_detokenize.argtypes = (
        c_void_p,
        POINTER(c_int32),
        c_int32,
        c_char_p,
        c_int32,
        c_bool,
        c_bool,
    )
    functions.llama_token_to_piece.argtypes = (c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool)
    for name in ("is_eog", "is_control"):
        function = getattr(functions, f"llama_vocab_{name}")
        function.argtypes, function.restype = (c_void_p, c_int32), c_bool
    for name in ("bos", "eos", "eot", "n_tokens", "get_add_bos", "get_add_eos"):
        getattr(functions, f"llama_vocab_{name}").argtypes = (c_void_p,)
    functions.llama_vocab_get_attr.argtypes = (c_void_p, c_int32)
    return functions


class Oracle:
    """A vocabulary as llama.cpp reads it."""

    def __init__(self, path: str) -> None:
        self._c = _library()
        self._vocab = self._c.llama_model_get_vocab(load(self._c, path, vocab_only=True))

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
