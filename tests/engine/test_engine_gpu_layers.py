"""Layers divided between two backends: the same answers, states and snapshots, and how many of them a GPU gets.

The GPU is a second CPU backend, so equality is of bits.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Embedded, Request, Sampling
from llamina.backends import backend as make
from llamina.backends.cpu import CpuBackend
from llamina.backends.split import SplitBackend, SplitProgram
from llamina.engine.runner import devices
from llamina.errors import CapacityError, RequestError
from llamina.gguf import GGUF
from llamina.server.model.describe import describe
from lora_files import draw, save

Files = Callable[[str], Path]
Found = Callable[..., None]
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, 128, 40)]
PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True}


class Gpu(CpuBackend):
    name = "cuda"

    def __init__(self, free: int) -> None:
        super().__init__(threads=1)
        self._free = free

    def free_bytes(self) -> int:
        return self._free

    def describe(self) -> dict[str, str]:
        return {"backend": self.name, "device": "a GPU"}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Found:
    """A machine with a GPU that has so much memory free, beside what is reserved."""

    def find(free: int = 1 << 40, stand_in: str | None = None) -> None:
        def made(name: str, **options: Any) -> Any:
            if name not in ("auto", "cuda"):
                return make(name, **options)
            return Gpu(free + devices.RESERVE) if stand_in is None else make(stand_in)

        monkeypatch.setattr(devices, "make_backend", made)
        monkeypatch.setattr(devices, "best", lambda given: "cuda")

    return find


def logits(path: Path | GGUF, **options: Any) -> Any:
    with llamina.load(path, threads=1, context=64, max_sequences=2, **options) as engine:
        divided = options.get("gpu_layers") in (1, 2)
        assert isinstance(engine.runner.program, SplitProgram) == divided
        return engine.logits(TOKENS)


@pytest.mark.parametrize(
    "name",
    ["llama-dense", "qwen2-dense", "gemma3-dense", "llama-moe", "deepseek2-moe", "mamba-dense", "falcon-h1-dense",
     "glm5-next-moe", "talkie-dense", "bloom-dense"],
)  # fmt: skip
def test_the_same_bits(name: str, files: Files, gpu: Found) -> None:
    """KV caches, windows, latent and recurrent states; one value or several handed over."""
    gpu()
    want = logits(files(name), backend="cpu")
    for count in (1, 2):
        assert np.array_equal(logits(files(name), backend="cuda", gpu_layers=count), want)
    assert np.array_equal(logits(files(name), backend="cuda", gpu_layers=0), want)
    assert np.array_equal(logits(files(name), backend="cuda", gpu_layers="all"), want)


def test_another_kind_of_backend(files: Files, gpu: Found) -> None:
    gpu(stand_in="reference")
    want = logits(files("llama-moe"), backend="reference", kv_type="f32")
    got = logits(files("llama-moe"), backend="cuda", gpu_layers=2, kv_type="f32")
    assert np.square(got - want).sum() / np.square(want).sum() < 1e-10


def test_answers_side_by_side(stories: Path, gpu: Found) -> None:
    """Prefixes are shared and pages copied in both halves."""
    gpu()
    found = []
    for options in ({"backend": "cpu"}, {"backend": "cuda", "gpu_layers": 3}):
        with llamina.load(stories, threads=1, context=64, **options) as engine:
            engine.generate(PROMPT, **GREEDY)
            streams = [engine.stream(PROMPT, **GREEDY, seed=seed) for seed in (1, 2)]
            streams.append(engine.stream("Once", max_tokens=12, seed=3))
            answers = [stream.result() for stream in streams]
            assert answers[0].usage.cached_tokens > 0
            forked = engine.generate(PROMPT, n=2, temperature=1.2, seed=5, max_tokens=8)
            found.append(([a.tokens for a in answers], forked.text, engine.embed("a llama").tolist()))
            assert engine.memory().cache > 0
    assert found[0] == found[1]


def test_embedding_rows(files: Files, gpu: Found) -> None:
    """The first half's rows are the prompt's, the second half's those of the first; both turn by M-RoPE's positions."""
    gpu()
    places = np.stack([np.zeros(6), np.arange(6) // 3, np.arange(6) % 3], 1).astype(np.int32)
    found = []
    for options in ({"backend": "cpu"}, {"backend": "cuda", "gpu_layers": 2}):
        with llamina.load(files("qwen2vl-dense"), threads=1, context=64, **options) as engine:
            rows = np.random.default_rng(1).standard_normal((6, engine.runner.model.width)).astype(np.float32)
            found.append(engine.logits([1, 7, Embedded(rows, positions=places), 9, 3]))
    assert np.array_equal(found[0], found[1])


def test_adapters_on_both_sides(stories: Path, gpu: Found, tmp_path: Path) -> None:
    gpu()
    names = [f"blk.{layer}.attn_q.weight" for layer in range(5)]
    file = save(tmp_path / "lora.gguf", "llama", draw(stories, names, 4, 1), alpha=8.0)
    found = []
    for options in ({"backend": "cpu"}, {"backend": "cuda", "gpu_layers": 3}):
        with llamina.load(stories, threads=1, context=64, **options) as engine:
            before = engine.generate(PROMPT, **GREEDY).tokens
            name = engine.load_adapter(file)
            found.append((before, engine.generate(PROMPT, **GREEDY, adapters={name: 2.0}).tokens))
    assert found[0] == found[1] and found[0][0] != found[0][1]


@pytest.mark.parametrize("counts", [(0, 3), (3, 0), (2, 4)])
def test_snapshots_move(stories: Path, gpu: Found, counts: tuple[int, int]) -> None:
    """What is written by one division of layers is read by another."""
    gpu()
    data, generated = b"", []
    for count in counts:
        with llamina.load(stories, threads=1, context=64, backend="cuda", gpu_layers=count) as engine:
            if data:
                sequence = engine.resume(data)
                assert sequence.computed >= 20, "nothing is computed again"
            else:
                sequence = engine.submit(Request(engine.encode(PROMPT), Sampling(temperature=0), 8, ignore_eos=True))
                while len(sequence.generated) < 4:
                    engine.step()
                data = engine.snapshot(sequence)
            while sequence.finish_reason is None:
                engine.step()
            generated.append(sequence.generated)
    assert generated[0] == generated[1]


@pytest.mark.parametrize(("layers", "name"), [(3, "cpu+cuda"), (6, "cuda"), (0, "cpu")])
def test_as_many_layers_as_fit(stories: Path, gpu: Found, layers: int, name: str) -> None:
    """The output matrix is that of the embeddings, 512 × 64; a layer has 45,000 numbers; pages are in halves."""
    with llamina.load(stories, threads=1, context=64) as engine:
        plan = engine.runner.plan
        wanted = devices.Wanted(64, 16, 512, "f16")
        _, part = SplitBackend(CpuBackend(), CpuBackend(), layers).parts(plan)[-1] if 0 < layers < 6 else (None, plan)
    free = (devices.weight_bytes(part) + wanted.least(part)) if layers else 1000
    for options in ({}, {"gpu_layers": "auto"}):
        gpu(free)
        with llamina.load(stories, context=64, **options) as engine:
            assert engine.runner.backend.name == name
            assert engine.runner.backend.describe().get("gpu_layers", "6" if name == "cuda" else "0") == str(layers)
            assert engine.core.pages.total >= 4
            told, size = describe(engine), devices.weight_bytes(engine.runner.plan)
            assert told.gpu_bytes == (devices.weight_bytes(part) if 0 < layers < 6 else size if layers else 0)
            assert told.device == {6: "a GPU", 3: "3 layers on a GPU, the others on the CPU", 0: "CPU"}[layers]


@pytest.mark.parametrize("options", [{}, {"gpu_layers": "auto"}], ids=str)
def test_a_gpu_that_was_asked_for_is_not_left_out(stories: Path, gpu: Found, options: dict[str, Any]) -> None:
    gpu(1000)
    with pytest.raises(CapacityError, match=r"not one layer fits the .* bytes that are free on the GPU"):
        llamina.load(stories, context=64, backend="cuda", **options)


def test_rows_that_attend_both_ways(stories: Path, gpu: Found) -> None:
    gpu()
    rows = llamina.Embedded(np.random.default_rng(1).standard_normal((4, 64), np.float32), both_ways=True)
    prompt, found = [1, rows, 5], []
    for layers in (0, 3):
        with llamina.load(stories, threads=1, context=64, gpu_layers=layers) as engine:
            found.append(engine.logits(prompt))
    assert np.abs(found[0] - found[1]).max() < 1e-2 * np.abs(found[0]).max()


def test_the_smaller_memory_has_room_for_the_pages(stories: Path, gpu: Found) -> None:
    options: dict[str, Any] = {"threads": 1, "context": 64, "gpu_layers": 5, "max_sequences": 64}
    gpu()
    with llamina.load(stories, **options) as engine:
        assert engine.core.pages.total == 64 * 4
        _, part = engine.runner.backend.parts(engine.runner.plan)[-1]
    page = 4 * 2 * 4 * 16 * 8 * 2  # layers of the GPU, keys and values, heads, tokens, dim, halves
    gpu(devices.weight_bytes(part) + 2 * 100 * page + 1 - devices.RESERVE)
    with llamina.load(stories, **options) as engine:
        assert engine.core.pages.total == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpu_layers": -2}, "must be a number of layers, 'auto' or 'all'"),
        ({"gpu_layers": True}, "must be a number of layers"),
        ({"gpu_layers": "some"}, "must be a number of layers"),
        ({"gpu_layers": 2, "backend": "cpu"}, "backend='cpu' has no GPU"),
        ({"gpu_layers": "all", "backend": "reference"}, "backend='reference' has no GPU"),
    ],
    ids=str,
)
def test_numbers_that_make_no_sense(stories: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        llamina.load(stories, **options)


def test_layers_that_cannot_be_divided(files: Files, gpu: Found) -> None:
    gpu()
    with pytest.raises(RequestError, match=r"gpu_layers is 2: .*: give 'auto', 'all' or 0"):
        llamina.load(files("hrm_text-dense"), gpu_layers=2)
