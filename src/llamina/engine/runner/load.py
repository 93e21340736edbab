"""From a file or a model's name to an engine."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import numpy as np

from llamina.engine.core import MAX_WAITING, Core
from llamina.engine.engine import Engine
from llamina.engine.options import LoadOptions
from llamina.engine.request import SAMPLING, check_names
from llamina.engine.runner.model_runner import ModelRunner
from llamina.engine.speculation.draft_file import open_draft
from llamina.engine.speculation.drafter import Drafter
from llamina.errors import RequestError, UnsupportedModel, check_whole
from llamina.gguf import GGUF, open_model
from llamina.hub.bar import progress_bar
from llamina.hub.sampling import sampling_for
from llamina.models import RopeOverrides, build
from llamina.models.rope_overrides import NAMES as ROPE_NAMES
from llamina.ops import Weight
from llamina.quant import format_of
from llamina.quant.arrays import GGUF as Arrays
from llamina.sampling import Sampling

DEFAULT_CONTEXT = 8192
MAX_CONTEXT = 1 << 24  # no trained context comes near this
QUANTIZING = ("quantize", "quantize_tensors", "quantize_imatrix", "requantize")
BEFORE = ("max_waiting", "revision", "token", *QUANTIZING)  # options that are no business of the runner
NAMED = {"backend", "device", "threads", "context", "draft", "mmproj", "progress"}
Progress = Callable[[str, int, int], None]
Source: TypeAlias = str | os.PathLike[str] | GGUF | Arrays | bytes | bytearray | memoryview


def load(
    model: Source | None = None,
    *,
    backend: str = "auto",
    device: int | None = None,
    threads: int | None = None,
    context: int | None = None,
    draft: str | os.PathLike[str] | None = None,
    mmproj: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Engine:
    """Load a GGUF file, or a model by its name; without either, the catalogue's default. Names are fetched if need be.

    A name is a short one, `user/repo[:quant]` of the Hugging Face Hub, with or without `hf:`, or an address on the web.
    `revision` is a branch, tag or commit of a repository, and `token` the Hub's, by default that of HF_TOKEN.
    The bytes of a GGUF file, or an opened `GGUF`, may be given instead.

    `backend` is auto (a GPU if one can be used, else the CPU), cpu, cuda or reference, and `device` the GPU's number;
    `stream` is the caller's CUDA stream on which a GPU works then. With `exact`, the bits that a GPU computes for a
    token do not depend on what else is in its step; on the CPU they never do. Without `context`, the trained one, at
    most 8192.
    Sampling parameters that requests leave out are those that the file (`general.sampling.*`) or the catalogue gives.

    `mmproj` is the file of an encoder of pictures or sounds; without it, the one beside the model is used.
    Pictures at web addresses are fetched from `picture_hosts` alone, which are none unless given.

    `draft` is a smaller model with the same vocabulary that drafts tokens, or a folder to choose one from. `kv_type`
    is the type of the KV cache, `cache_tokens` its size in tokens, `max_sequences` how many are computed at once,
    `step_tokens` how many tokens one step computes at the most, `max_waiting` how many requests may wait.

    With `offload` the weights are read as they are needed, within a `memory_budget` in bytes; with "pinned", layers in
    `pin` (by number, below 0 from the end; "embeddings", "output") stay in memory before others do. `prefetch` is how
    many parts of the model are read ahead, 1 unless given. On Linux, weights that the CPU computes with are copied into
    huge pages, which is faster, if half of the free memory holds them; with `huge_pages=False` they stay in the file's
    pages, which processes share. `gpu_layers` is how many of the last layers a GPU computes, the output counted as one,
    or "all"; the CPU computes the others. Without it, and with "auto", those that fit the GPU's free memory.
    `tensor_parallel` divides every layer among so many GPUs, from `device` on, each with its heads and its rows or
    columns of the weights.

    `tokenizer` is a GGUF file, a tokenizer.json or a folder in place of the file's vocabulary; a tokenizer.json beside
    a file that has none is found. `chat_template` is Jinja or a name (chatml, llama3, ...) in place of the file's;
    `sampling` are parameters that requests have unless they say otherwise, before the file's.

    `quantize` loads a copy in that type (q4_k, Q8_0, …), which is made once and kept in the cache; `quantize_tensors`
    are types of tensors in whose names a pattern is found. `quantize_imatrix` is the importance matrix that types of
    few bits need, and `requantize` allows it for a model that is quantized already.

    `progress(what, done, total)` is told of fetching and compiling; without it a bar is shown, on a terminal or as a
    widget of a notebook.

    `rope_scaling` (none, linear, yarn), `rope_freq_base`, `rope_freq_scale`, `yarn_ext_factor`, `yarn_attn_factor`,
    `yarn_beta_fast`, `yarn_beta_slow` and `yarn_orig_ctx` take the place of the file's RoPE settings, as llama.cpp's
    options do: `rope_freq_scale=0.25` with a `context` four times as long as the trained one.
    """
    check_names(options, LoadOptions.__optional_keys__ | NAMED)
    check_whole("threads", threads, 1, optional=True)
    check_whole("context", context, 2, MAX_CONTEXT, optional=True)
    check_whole("max_waiting", options.get("max_waiting"), 1, optional=True)
    given = options.get("sampling") or {}
    check_names(given, frozenset(SAMPLING))
    Sampling(**given)  # raises for what no request could be sampled with
    file = _opened(model, progress, options)
    if str(file.metadata.get("general.type")) == "adapter":
        raise UnsupportedModel(f"{file.source} is a LoRA adapter: load its model, then give it to load_adapter")
    file = _in_fewer_bits(file, options, threads, progress)
    weights, rope = weights_of(file), RopeOverrides.take(options)
    trained = build(file.metadata, weights).config.trained_context
    built = build(file.metadata, weights, context or min(trained, DEFAULT_CONTEXT), rope)
    smaller = None if draft is None else open_draft(locate(draft, progress), file)
    own: dict[str, Any] = {name: value for name, value in options.items() if name not in (*BEFORE, *ROPE_NAMES)}
    own |= {"sampling": {**sampling_for(file), **given}, "mmproj": mmproj}
    shown = progress_bar("parts") if progress is None else None
    with shown or nullcontext():
        told = progress or shown
        runner = ModelRunner(file, built, backend=backend, device=device, threads=threads, progress=told, **own)
    engine = Engine(Core(runner, options.get("max_waiting", MAX_WAITING)))
    if smaller is not None:
        shared = ("kv_type", "stream", "exact", "step_tokens", "max_sequences")
        same = {name: value for name, value in own.items() if name in shared}
        if own.get("gpu_layers") == 0:  # a draft model has what its target leaves, but no GPU that is not wanted
            same["gpu_layers"] = 0
        same |= {"backend": backend, "device": device, "threads": threads, "context": engine.context}
        drafts = load(smaller, progress=progress, **same)  # type: ignore[arg-type]
        engine.core.speculation.drafter = Drafter(drafts.core, runner.plan.vocab)
    return engine


def _opened(model: Source | None, progress: Progress | None, options: LoadOptions) -> GGUF:
    """The file that is meant. Raises what fetching, finding and opening it may raise."""
    named = {"revision": options.get("revision"), "token": options.get("token")}
    if any(named.values()) and not isinstance(model, str):
        raise RequestError("revision and token are those of a repository: give the model as user/repo", "model")
    if isinstance(model, GGUF | Arrays):
        return model.file if isinstance(model, Arrays) else model
    if not isinstance(model, bytes | bytearray | memoryview):
        return open_model(locate(model, progress, **named))
    if options.get("offload", "none") != "none" or options.get("memory_budget"):
        raise RequestError("offload reads weights from a file, and the model is in memory: give its path", "offload")
    file = GGUF.from_bytes(model)
    if file.metadata.get("split.count", 1) not in (0, 1):
        raise RequestError("the bytes are one of several shards: give the path of the first, or merge them", "model")
    return file


def _in_fewer_bits(file: GGUF, options: LoadOptions, threads: int | None, progress: Progress | None) -> GGUF:
    """The model that is to be loaded: quantized, if that is asked for."""
    kind, tensors = options.get("quantize"), options.get("quantize_tensors")
    if kind is None:
        if given := [name for name in QUANTIZING if options.get(name)]:
            raise RequestError(f"{given[0]} says how a copy in fewer bits is made: give quantize, its type", "quantize")
        return file
    from llamina.quantization.cached import quantized_copy

    shown = progress_bar("bytes", "quantizing") if progress is None else None
    with shown or nullcontext():
        told = progress or shown
        return quantized_copy(
            file, kind, tensors, imatrix=options.get("quantize_imatrix"), requantize=options.get("requantize", False),
            threads=threads, progress=told, compiling=progress,
        )  # fmt: skip


def locate(
    model: str | os.PathLike[str] | None,
    progress: Progress | None = None,
    *,
    revision: str | None = None,
    token: str | None = None,
) -> Path:
    """The path itself if it is there, else the model of that name, pulled if need be; None is the default.

    `revision` and `token` are those of a repository. Raises ModelNotFound, DownloadError or RequestError.
    """
    if model is not None and not isinstance(model, str | os.PathLike):
        raise RequestError(f"model is of type {type(model).__name__}: it must be a path or a model's name", "model")
    if model is not None and Path(model).exists():
        if revision is not None:
            raise RequestError(f"{model} is a file, which has no revision: write hf:{model} for a repository", "model")
        return Path(model)
    from llamina.hub import DEFAULT, obtain

    return obtain(DEFAULT if model is None else os.fspath(model), progress, revision=revision, token=token)


def weights_of(file: GGUF, read: bool = True) -> dict[str, Weight]:
    """Every tensor as a weight (without data, unless `read`); NAME.bias and NAME.scale come along with NAME.weight."""
    weights: dict[str, Weight] = {}
    for name, tensor in sorted(file.tensors.items()):  # biases and scales sort before weights
        stem = name.removesuffix("weight")
        bias, scale = (weights.get(stem + part) if stem != name else None for part in ("bias", "scale"))
        data = tensor.data if read else np.zeros(0, np.uint8)
        weights[name] = Weight(name, tensor.shape, format_of(tensor.type), data, bias, scale)
    return weights
