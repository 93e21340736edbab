"""llama.cpp's logits and embeddings for a file, computed beside us."""

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_size_t, c_uint8, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llama_library import library, load


class _ContextParams(ctypes.Structure):
    """The head of `struct llama_context_params`, and room for the rest: all else is left as it is by default."""

    _fields_ = (
        *(
            (name, c_uint32)
            for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs", "n_each")
        ),
        *(
            (name, c_int32)
            for name in ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type", "pooling_type")
        ),
        *((name, c_int32) for name in ("attention_type", "flash_attn_type")),
        *((name, c_float) for name in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor")),
        *((name, c_float) for name in ("yarn_beta_fast", "yarn_beta_slow")),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        *((name, c_void_p) for name in ("cb_eval", "cb_eval_user_data")),
        *((name, c_int32) for name in ("type_k", "type_v")),
        ("rest", c_uint8 * 400),
    )


class _Batch(ctypes.Structure):
    """`struct llama_batch`, as `llama_batch_get_one` fills it."""

    _fields_ = (("n_tokens", c_int32), *((name, c_void_p) for name in ("token", "embd", "pos", "n", "seq", "logits")))


def last_logits(
    path: Path, tokens: list[int], context: int, adapters: Sequence[tuple[Path, float]] = (), **rope: Any
) -> npt.NDArray[np.float32]:
    """The logits after the last token; keys and values are kept in F16, which costs about 1e-7."""
    with _computed(path, tokens, context, adapters, settings=rope) as (c, model, run):
        vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(model))
        return np.ctypeslib.as_array(c.llama_get_logits_ith(run, -1), (vocab,)).copy()


def every_logits(path: Path, tokens: list[int], context: int) -> npt.NDArray[np.float32]:
    """The logits after each token, in one batch; keys and values are kept in F32, and nothing is rounded to F16."""
    exact = {"type_k": 0, "type_v": 0, "flash_attn_type": 0}
    with _computed(path, tokens, context, every=True, settings=exact) as (c, model, run):
        vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(model))
        rows = [np.ctypeslib.as_array(c.llama_get_logits_ith(run, i), (vocab,)) for i in range(len(tokens))]
        return np.array(rows)


def logits_after_rows(
    path: Path,
    before: list[int],
    rows: npt.NDArray[np.float32],
    positions: npt.NDArray[np.int32],
    after: list[int],
    both_ways: bool = False,
) -> npt.NDArray[np.float32]:
    """The logits after tokens, embedding rows with M-RoPE's positions [n, 3], and more tokens.

    With `both_ways` the rows attend to each other, as mtmd has it for Gemma 3.
    """
    with _computed(path, before, 256) as (c, model, run):
        first, n = len(before), len(rows)
        places = np.zeros((4, n), np.int32)
        places[:3] = first + positions.T
        rows = np.ascontiguousarray(rows, np.float32)
        batch = _Batch(n, None, rows.ctypes.data, places.ctypes.data)
        c.llama_set_causal_attn(run, not both_ways)
        assert c.llama_decode(run, batch) == 0
        c.llama_set_causal_attn(run, True)
        tokens, last = np.array(after, np.int32), first + int(positions.max()) + 1
        counted = np.arange(last, last + len(after), dtype=np.int32)
        assert c.llama_decode(run, _Batch(len(after), tokens.ctypes.data, None, counted.ctypes.data)) == 0
        vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(model))
        return np.ctypeslib.as_array(c.llama_get_logits_ith(run, -1), (vocab,)).copy()


def embedding(path: Path, tokens: list[int], context: int, width: int) -> npt.NDArray[np.float32]:
    """What the file's own pooling makes of the tokens: a vector, or `width` scores. Without pooling, a row for each."""
    with _computed(path, tokens, context, embeddings=True) as (c, _, run):
        if c.llama_pooling_type(run) == 0:
            rows = [np.ctypeslib.as_array(c.llama_get_embeddings_ith(run, i), (width,)) for i in range(len(tokens))]
            return np.array(rows)
        return np.ctypeslib.as_array(c.llama_get_embeddings_seq(run, 0), (width,)).copy()


@contextmanager
def _computed(
    path: Path,
    tokens: list[int],
    context: int,
    adapters: Sequence[tuple[Path, float]] = (),
    embeddings: bool = False,
    settings: Mapping[str, Any] | None = None,
    every: bool = False,
) -> Iterator[tuple[Any, int, int]]:
    """llama.cpp with the model, and a context in which the tokens have been computed; the last is an output, or all."""
    c = library()
    c.llama_context_default_params.restype = _ContextParams
    c.llama_init_from_model.argtypes, c.llama_init_from_model.restype = (c_void_p, _ContextParams), c_void_p
    c.llama_batch_get_one.argtypes, c.llama_batch_get_one.restype = (POINTER(c_int32), c_int32), _Batch
    c.llama_decode.argtypes, c.llama_decode.restype = (c_void_p, _Batch), c_int32
    for rows in (c.llama_get_logits_ith, c.llama_get_embeddings_ith, c.llama_get_embeddings_seq):
        rows.argtypes, rows.restype = (c_void_p, c_int32), POINTER(c_float)
    c.llama_set_embeddings.argtypes = c.llama_set_causal_attn.argtypes = (c_void_p, c_bool)
    c.llama_pooling_type.argtypes = (c_void_p,)
    c.llama_free.argtypes = c.llama_model_free.argtypes = c.llama_vocab_n_tokens.argtypes = (c_void_p,)
    model = load(c, str(path))
    params = c.llama_context_default_params()
    assert (params.rope_scaling_type, params.yarn_ext_factor, params.yarn_orig_ctx) == (-1, -1.0, 0)  # where they are
    assert (params.type_k, params.type_v) == (1, 1)
    params.n_ctx = context
    for name, value in (settings or {}).items():
        setattr(params, name, value)
    run = c.llama_init_from_model(model, params)
    assert run, f"llama.cpp cannot run {path}"
    _adapt(c, model, run, adapters)
    c.llama_set_embeddings(run, embeddings)
    array = (c_int32 * len(tokens))(*tokens)
    batch, wanted = c.llama_batch_get_one(array, len(tokens)), np.ones(len(tokens), np.int8)
    if every:
        batch.logits = wanted.ctypes.data
    assert c.llama_decode(run, batch) == 0
    yield c, model, run
    c.llama_free(run)
    c.llama_model_free(model)


def _adapt(c: Any, model: int, run: int, adapters: Sequence[tuple[Path, float]]) -> None:
    """Load LoRA files into the model, and have the context use them."""
    c.llama_adapter_lora_init.argtypes, c.llama_adapter_lora_init.restype = (c_void_p, c_char_p), c_void_p
    c.llama_set_adapters_lora.argtypes = (c_void_p, POINTER(c_void_p), c_size_t, POINTER(c_float))
    loaded = [c.llama_adapter_lora_init(model, os.fsencode(path)) for path, _ in adapters]
    assert all(loaded), "llama.cpp cannot load an adapter"
    handles, scales = (c_void_p * len(loaded))(*loaded), (c_float * len(loaded))(*[scale for _, scale in adapters])
    assert c.llama_set_adapters_lora(run, handles, len(loaded), scales) == 0
