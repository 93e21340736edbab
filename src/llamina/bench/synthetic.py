"""GGUF files of a real model's shape with random weights: speed does not depend on what the weights are."""

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.encode import NEEDS_IMPORTANCES, Encoder, Job, prepare
from llamina.bench.shapes import SHAPES, Shape, file_type_number, parse_shape
from llamina.gguf import TensorType, tensor_type, write
from llamina.gguf.writer import Source
from llamina.places import cache_dir
from llamina.quant import encode
from llamina.tokenizer.pieces import byte_letters

Bytes = npt.NDArray[np.uint8]
Progress = Callable[[str, int, int], None]
VERSION = 2  # of the weights and the vocabulary: files of another version are not used
POOL_ROWS = 32  # rows that are really random; every tensor is made of their blocks
UNIT = 32  # numbers that stay together, if a block has fewer
PART = 1 << 25  # bytes that are made at a time
NORMAL, CONTROL = 1, 3  # types of tokens


def shape_file(text: str, progress: Progress | None = None, compiling: Progress | None = None) -> Path:
    """The file of `llama-3-8b:Q4_K_M` in the cache folder, written unless it is there.

    It appears when it is complete. `progress` is told (name, bytes done, bytes in all). Raises RequestError for an
    unknown shape or type, CapacityError if the disk has no room for it.
    """
    from filelock import FileLock

    name, mix = parse_shape(text)
    folder = cache_dir() / "shapes"
    path = folder / f"{name}-{mix}-v{VERSION}.gguf"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{path.name}.lock"):  # another process may be at it
        if not path.exists():
            for left in folder.glob(f".{path.name}.*.part"):  # by a process that was killed
                left.unlink()
            write_shape(path, SHAPES[name], mix, progress, compiling)
    return path


def write_shape(
    path: Path, shape: Shape, mix: str, progress: Progress | None = None, compiling: Progress | None = None
) -> None:
    """Write the file. Raises CapacityError if the disk has no room for it."""
    types, shapes = shape.types(mix), shape.tensors
    total, done = sum(kind.size(shapes[name]) for name, kind in types.items()), 0
    blocks = sorted({(kind.id, shapes[name][-1]) for name, kind in types.items() if _is_random(name, shapes[name])})
    pools = _pools(blocks, compiling)

    def counted(name: str, kind: TensorType) -> Iterator[Bytes]:
        nonlocal done
        for part in _parts(name, shapes[name], kind, pools):
            yield part
            done += part.nbytes
            if progress is not None:
                progress(path.name, done, total)

    tensors: list[Source] = [(name, shapes[name], kind, partial(counted, name, kind)) for name, kind in types.items()]
    write(path, _metadata(shape, mix, path.stem), tensors)


def _is_random(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and name.endswith(".weight")


def _pools(wanted: list[tuple[int, int]], compiling: Progress | None) -> dict[tuple[int, int], Bytes]:
    """Units [count, bytes] of weights by type and row length: normal numbers; products keep the size of their input."""
    kinds = {number: tensor_type(number) for number, _ in wanted}
    prepare([(kind, kind.name in NEEDS_IMPORTANCES) for kind in kinds.values()], compiling)
    rng, found = np.random.default_rng(0), {}
    with Encoder(1) as encoder:
        for number, width in wanted:
            kind = kinds[number]
            values = rng.standard_normal((POOL_ROWS, width), np.float32) / np.float32(np.sqrt(width))
            if kind.block == 1:
                rows = encode(values, kind)
            else:
                ones = np.ones(width, np.float32) if kind.name in NEEDS_IMPORTANCES else None
                rows = encoder.encode(Job(encode(values, "F32"), tensor_type("F32"), kind, ones))
            found[number, width] = rows.reshape(-1, max(UNIT // kind.block, 1) * kind.nbytes)
    return found


def _parts(name: str, shape: tuple[int, ...], kind: TensorType, pools: dict[tuple[int, int], Bytes]) -> Iterator[Bytes]:
    """A tensor's bytes: of a matrix units of its pool in random order, of a norm ones, of a bias zeros."""
    if not _is_random(name, shape):
        yield np.full(prod(shape), float("norm" in name), np.float32).view(np.uint8)
        return
    pool = pools[kind.id, shape[-1]]
    rng = np.random.default_rng([len(name), *name.encode()])
    left, most = kind.size(shape) // pool.shape[1], max(1, PART // pool.shape[1])
    while left:
        count = min(left, most)
        yield pool[rng.integers(0, len(pool), count)].reshape(-1)
        left -= count


def _metadata(shape: Shape, mix: str, name: str) -> dict[str, Any]:
    """The shape's, with a vocabulary of bytes, a few words, and names that stand for the rest."""
    values = byte_letters()
    letters = sorted(values, key=values.__getitem__)
    space = letters[ord(" ")]
    words = [space + "t", "in", space + "in"]
    merges = [f"{space} t", "i n", f"{space} in"]
    special = ["<|begin|>", "<|end|>"]
    known = [*special, *letters, *words]
    tokens = [*known, *(f"<|unused_{i}|>" for i in range(shape.vocab - len(known)))]
    types = [CONTROL] * len(special) + [NORMAL] * (shape.vocab - len(special))  # so servers have text to send
    return {
        **shape.metadata,
        "general.name": f"random weights in the shape of {name}",
        "general.file_type": file_type_number(mix),
        "general.quantization_version": 2,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }
