"""What model files did to other programs, each as a test: an error of ours, before anything is read or reserved."""

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_gguf_hostile import build, entry, pair, string

import llamina
from llamina.errors import LlaminaError, ModelFileError
from llamina.gguf import GGUF, write


def refused(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)
    with pytest.raises(ModelFileError):
        GGUF.open(path)
    with pytest.raises(LlaminaError):
        llamina.load(path)


@pytest.mark.parametrize("dims", [[2**61, 8], [2**64 - 1], [2**32, 2**32], [2**63, 2], [2**62, 2, 2]])
def test_cve_2026_27940_sizes_do_not_overflow(dims: list[int], tmp_path: Path) -> None:
    """Also CVE-2025-53630: padded sizes of tensors were added up in 64 bits, and came out small."""
    refused(tmp_path / "a.gguf", build([], [entry(b"x", dims)], bytes(64)))
    many = [entry(b"x%d" % i, [2**58], offset=32 * i) for i in range(64)]
    refused(tmp_path / "b.gguf", build([], many, bytes(64)))


@pytest.mark.parametrize("offset", [64, 2**40, 2**63, 2**64 - 32])
def test_cve_2026_7482_tensors_lie_within_the_file(offset: int, tmp_path: Path) -> None:
    """Bleeding Llama: memory behind the file was read as weights, and could be taken away in a model made of them."""
    refused(tmp_path / "a.gguf", build([], [entry(b"x", [8], offset=offset)], bytes(64)))
    refused(tmp_path / "b.gguf", build([], [entry(b"x", [1024])], bytes(64)))


@pytest.mark.parametrize("size", [2**31, 2**32, 2**61, 2**63, 2**64 - 1])
def test_cve_2024_21802_lengths_are_believed_by_nobody(size: int, tmp_path: Path) -> None:
    """Also -21825, -21836, -23496 and -23605: counts and lengths times sizes, reserved before they were checked."""
    refused(tmp_path / "a.gguf", build(counts=(size, None), data=bytes(64)))
    refused(tmp_path / "b.gguf", build(counts=(None, size), data=bytes(64)))
    refused(tmp_path / "c.gguf", build([pair(b"a", 8, struct.pack("<Q", size))], data=bytes(64)))
    refused(tmp_path / "d.gguf", build([pair(b"a", 9, struct.pack("<IQ", 8, size))], data=bytes(64)))
    refused(tmp_path / "e.gguf", build([], [struct.pack("<Q", size) + b"x"], bytes(64)))
    refused(tmp_path / "f.gguf", build([], [string(b"x") + struct.pack("<I", min(size, 2**32 - 1))], bytes(64)))


@pytest.fixture
def changed(golden: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A model with other metadata."""

    def change(**metadata: Any) -> Path:
        with GGUF.open(golden("stories260K.gguf")) as file:
            given = {**file.metadata, **{key.replace("__", "."): value for key, value in metadata.items()}}
            types = {key: kind for key, kind in file.metadata_types.items() if key.replace(".", "__") not in metadata}
            kept = {key: value for key, value in given.items() if value is not None}
            write(tmp_path / "changed.gguf", kept, file.tensors.values(), metadata_types=types)
        return tmp_path / "changed.gguf"

    return change


def test_cve_2025_49847_texts_of_tokens_of_any_length(
    changed: Callable[..., Path], golden: Callable[[str], Path]
) -> None:
    """Also CVE-2025-52566: lengths were cast to 32 signed bits on their way into a buffer."""
    with GGUF.open(golden("stories260K.gguf")) as file:
        tokens = list(file.metadata["tokenizer.ggml.tokens"])  # type: ignore[call-overload]
    tokens[300] = "x" * (1 << 20)
    with llamina.load(changed(tokenizer__ggml__tokens=tokens), threads=1, context=64) as engine:
        assert engine.encode("Once") and len(engine.tokenizer.decode([300])) >= 1 << 20
        assert engine.generate("Once", max_tokens=2, temperature=0).text is not None
    for wrong in (tokens[:5], [], tokens * 3):
        answer_or_error(changed(tokenizer__ggml__tokens=wrong))


HYPER = [
    *({f"llama__{name}": value} for name in ("block_count", "embedding_length") for value in (0, 2**31 - 1, 2**32 - 1)),
    *({"llama__attention__head_count": value} for value in (0, 3, 2**31 - 1)),
    *({"llama__attention__head_count_kv": value} for value in (0, 3, 2**31 - 1)),
    *({"llama__feed_forward_length": value} for value in (0, 2**32 - 1)),
    *({"llama__context_length": value} for value in (0,)),
    *({"llama__rope__dimension_count": value} for value in (3, 2**32 - 1)),
    {"llama__attention__layer_norm_rms_epsilon": float("nan")},
    {"llama__attention__layer_norm_rms_epsilon": -1.0},
    {"llama__rope__freq_base": 0.0},
    {"llama__rope__freq_base": float("inf")},
    {"llama__block_count": None},
    {"llama__block_count": "five"},
    {"llama__block_count": [5]},
    {"general__architecture": "nothing"},
    {"general__architecture": None},
    {"general__architecture": "../llama"},
    {"tokenizer__ggml__model": "nothing"},
    {"tokenizer__ggml__bos_token_id": 2**32 - 1},
    {"tokenizer__ggml__scores": [1.0]},
    {"tokenizer__ggml__token_type": [1]},
    {"llama__expert_count": 2**31 - 1},
    {"tokenizer__chat_template": "{% for %}"},
]


@pytest.mark.parametrize("metadata", HYPER, ids=str)
def test_cve_2024_39719_hyper_parameters_are_checked(metadata: Any, changed: Callable[..., Path]) -> None:
    """Also -39720 to -39722, -12886, -8063 and CVE-2025-0312, -0315, -0317: zeros to divide by, sizes to reserve.

    Loading is refused, or the model works; nothing else is raised, and no memory is taken for what is not there.
    """
    process = psutil.Process()
    before = process.memory_info().rss
    answer_or_error(changed(**metadata))
    assert process.memory_info().rss - before < 1 << 30


def answer_or_error(path: Path) -> None:
    """Load and ask a model; it works, or raises an error of ours."""
    with suppress(LlaminaError), llamina.load(path, threads=1) as engine:
        with suppress(LlaminaError):
            engine.generate("Once", max_tokens=1)
        engine.chat("hi", max_tokens=1)
