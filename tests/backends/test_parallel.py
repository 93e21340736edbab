"""Models divided among ranks: the logits of one, by threads and by processes; parts that are whole heads and blocks."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from plans import block_weight, error, float_weight, pieces

import llamina
from llamina.backends import Capacity, backend
from llamina.backends.links import Meeting
from llamina.backends.parallel import ParallelBackend
from llamina.errors import KernelError, RequestError, SnapshotError, UnsupportedModel
from llamina.ops import (
    Attention,
    Value,
    attend,
    attend_latent,
    concat,
    embed,
    flat,
    gated,
    head_linear,
    heads,
    linear,
    norm,
    pick,
    reshape,
    split,
)  # fmt: skip
from llamina.ops.batch import Batch
from llamina.plan import Plan, record
from llamina.plan.shard import shard
from lora_files import draw, save
from skips import import_peer

Files = Callable[[str], Path]
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, 128, 40)]
PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."


@pytest.fixture(scope="module")
def stories(golden: Callable[[str], Path]) -> Path:
    """8 heads of 8, 4 key heads."""
    return golden("stories260K.gguf")


def logits(path: Path, ranks: int, name: str = "cpu") -> npt.NDArray[np.float32]:
    options: dict[str, Any] = {"threads": 1} if name == "cpu" else {}
    with llamina.load(path, backend=name, context=64, kv_type="f32", tensor_parallel=ranks, **options) as engine:
        assert engine.runner.backend.name == (name if ranks == 1 else f"{name}×{ranks}")
        return engine.logits(TOKENS)


@pytest.mark.parametrize(
    "name",
    ["llama-dense", "qwen2-dense", "qwen3-dense", "gemma2-dense", "phi3-dense", "falcon-dense", "olmo2-dense",
     "llama-moe", "gpt-oss-moe", "grovemoe-moe", "deepseek2-moe", "falcon-h1-dense", "qwen4exp-moe",
     "gemma4-moe", "gemma4-shared"],
)  # fmt: skip
def test_two_ranks_compute_the_same(name: str, files: Files) -> None:
    """Biases, one key head, soft caps, windows, fused matrices, parallel residuals, norms over all heads, experts,
    layers that share keys."""
    assert error(logits(files(name), 2), logits(files(name), 1)) < 1e-11


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_more_ranks(ranks: int, stories: Path) -> None:
    """Parts of different sizes with 3; with 8, two ranks have the same key head."""
    assert error(logits(stories, ranks, "reference"), logits(stories, 1, "reference")) < 1e-11


def test_answers(stories: Path) -> None:
    """The scheduler runs once: several sequences, shared prefixes, copied pages."""
    found = []
    for ranks in (1, 2):
        with llamina.load(
            stories, backend="cpu", threads=2, context=64, kv_type="f32", tensor_parallel=ranks
        ) as engine:
            engine.generate(PROMPT, temperature=0, max_tokens=12)
            streams = [engine.stream(PROMPT, seed=seed, max_tokens=8) for seed in (1, 2)]
            tokens = [stream.result().tokens for stream in streams]
            forked = engine.generate(PROMPT, n=2, temperature=1.2, seed=5, max_tokens=8)
            vector = engine.embed("a llama")
            found.append((tokens, forked.text, vector))
            assert engine.memory().cache > 0
    assert found[0][:2] == found[1][:2]
    assert np.allclose(found[0][2], found[1][2], atol=1e-5)


# ---- what is divided where ------------------------------------------------------------------------------------------

TABLE = float_weight("token_embd.weight", np.random.default_rng(0).standard_normal((32, 256)))


def compute(plan: Plan, ranks: int) -> npt.NDArray[np.float32]:
    """In two steps, on the reference backend."""
    batch, one = Batch(32, 32, 2, 4), backend("reference")
    made = ParallelBackend([backend("reference") for _ in range(ranks)], together=True) if ranks > 1 else one
    program = made.compile(plan, batch, Capacity(8, 2, "f32"))
    steps = pieces([3, 1, 4, 1, 5, 9, 2, 6], 5)
    found = np.concatenate([program.launch(batch.fill(step)).result().copy() for step in steps])
    program.close()
    return found


def shapes(plan: Plan, ranks: int) -> list[dict[str, tuple[int, ...]]]:
    """The shapes of each rank's weights."""
    plans = [shard(plan, link) for link in Meeting(ranks).links]
    return [{str(w).split(".weight")[0]: w.shape for step in p.steps for w in step.weights} for p in plans]


def test_columns_end_between_blocks() -> None:
    """768 columns are three blocks of Q4_K: one for the first rank and two for the second; so are the rows before."""
    gate, up = (
        block_weight(f"blk.0.ffn_{part}.weight", "Q4_K", (768, 256), i) for i, part in enumerate(("gate", "up"))
    )
    down = block_weight("blk.0.ffn_down.weight", "Q4_K", (256, 768), 2)

    def forward(tokens: Value, positions: Value) -> Value:
        x = embed(tokens, TABLE)
        return pick(x + linear(gated(linear(x, gate), linear(x, up), "silu"), down))

    plan = record(forward)
    first, second = shapes(plan, 2)
    assert first["blk.0.ffn_gate"] == first["blk.0.ffn_up"] == (256, 256) and first["blk.0.ffn_down"] == (256, 256)
    assert second["blk.0.ffn_gate"] == second["blk.0.ffn_up"] == (512, 256) and second["blk.0.ffn_down"] == (256, 512)
    assert error(compute(plan, 2), compute(plan, 1)) < 1e-11
    with pytest.raises(UnsupportedModel, match=r"among 4 ranks: blk\.0\.ffn_down\.weight has too few blocks of 256"):
        shard(plan, Meeting(4).links[0])


def test_heads_end_between_blocks() -> None:
    """Heads of 64 in blocks of 256: four of them go together, with the two key heads that they share."""
    q, k, v = (
        block_weight(f"blk.0.attn_{n}.weight", "Q4_K", (s, 256), s) for n, s in (("q", 512), ("k", 256), ("v", 256))
    )
    out = block_weight("blk.0.attn_output.weight", "Q4_K", (256, 512), 9)

    def forward(tokens: Value, positions: Value) -> Value:
        x = norm(embed(tokens, TABLE), None, 1e-5)
        a = attend(heads(linear(x, q), 8), heads(linear(x, k), 4), heads(linear(x, v), 4), 0, Attention(0.1))
        return pick(x + linear(flat(a), out))

    plan = record(forward)
    for found in shapes(plan, 2):
        assert found["blk.0.attn_q"] == (256, 256) and found["blk.0.attn_k"] == found["blk.0.attn_v"] == (128, 256)
        assert found["blk.0.attn_output"] == (256, 256)
    assert [shard(plan, link).states[0].shape for link in Meeting(2).links] == [(2, 64, 64)] * 2
    assert error(compute(plan, 2), compute(plan, 1)) < 1e-11


def test_a_latent_key_is_on_every_rank() -> None:
    """MLA: four heads of q with matrices of their own, one latent key."""
    rng = np.random.default_rng(1)
    names = {"q": (4 * 48, 256), "kv": (80, 256), "k_b": (4, 64, 32), "v_b": (4, 24, 64), "output": (256, 96)}
    w = {n: float_weight(f"blk.0.attn_{n}.weight", rng.standard_normal(s) * s[-1] ** -0.5) for n, s in names.items()}

    def forward(tokens: Value, positions: Value) -> Value:
        x = embed(tokens, TABLE)
        plain, turned = split(heads(linear(x, w["q"]), 4), 32, 16)
        latent, key = split(linear(x, w["kv"]), 64, 16)
        q = concat(head_linear(plain, w["k_b"]), turned)
        k = concat(reshape(norm(latent, None, 1e-5), 1, 64), reshape(key, 1, 16))
        out = head_linear(attend_latent(q, k, 64, 0, Attention(0.1)), w["v_b"])
        return pick(x + linear(flat(out), w["output"]))

    plan = record(forward)
    for found in shapes(plan, 2):
        assert found["blk.0.attn_q"] == (96, 256) and found["blk.0.attn_k_b"] == (2, 64, 32)
        assert found["blk.0.attn_kv"] == (80, 256) and found["blk.0.attn_output"] == (256, 48)
    assert error(compute(plan, 2), compute(plan, 1)) < 1e-11


# ---- what does not go -----------------------------------------------------------------------------------------------


def test_an_architecture_that_cannot_be_divided(files: Files) -> None:
    with pytest.raises(
        UnsupportedModel, match=r"among 2 ranks: convolve \(blk\.0\.ssm_conv1d\) needs all of its input"
    ):
        llamina.load(files("mamba-dense"), backend="reference", tensor_parallel=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel": 0}, "tensor_parallel is 0: it must be a whole number of at least 1"),
        ({"tensor_parallel": 2, "gpu_layers": 3}, "give one of them"),
        ({"tensor_parallel": 2, "backend": "cpu", "offload": "budget", "memory_budget": 10**9}, "offload needs all"),
    ],
    ids=str,
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str, stories: Path) -> None:
    with pytest.raises(RequestError, match=message):
        llamina.load(stories, **options)


def test_no_adapters_and_no_snapshots(stories: Path, tmp_path: Path) -> None:
    file = save(tmp_path / "lora.gguf", "llama", draw(stories, ["blk.0.attn_q.weight"], 4, 1))
    with llamina.load(stories, backend="cpu", threads=1, context=64, tensor_parallel=2) as engine:
        with pytest.raises(UnsupportedModel, match="without tensor_parallel"):
            engine.load_adapter(file)
        stream = engine.stream("Once", max_tokens=4, temperature=0)
        next(stream)
        with pytest.raises(SnapshotError, match="without tensor_parallel"):
            engine.snapshot(stream.sequence)
        assert len(stream.result().tokens) == 4


def test_a_rank_that_fails_lets_the_others_go() -> None:
    made = ParallelBackend([backend("reference")] * 2, together=True)
    links = made.meeting.links

    def fail(rank: int) -> None:
        if rank:
            raise KernelError("out of order")
        links[rank].all_reduce(np.zeros(3, np.float32))

    for _ in range(2):
        with pytest.raises(KernelError, match="out of order"):
            made.each(fail)
    arrays = [np.array([1.0, 2.0], np.float32), np.array([10.0, 20.0], np.float32)]
    made.each(lambda rank: links[rank].all_reduce(arrays[rank]))
    assert [list(array) for array in arrays] == [[11.0, 22.0]] * 2


PROCESS = """
import sys
import numpy as np
from llamina.backends import Capacity, backend
import torch
import torch.distributed as ranks
from llamina.engine.runner.load import weights_of
from llamina.gguf import open_model
from llamina.models import build
from llamina.ops.batch import Batch, Span
from llamina.plan import record
from llamina.plan.shard import shard
path, out = sys.argv[1:]
class Process:  # a link of its own: `all_reduce` steps take any
    def __init__(self):
        ranks.init_process_group("gloo")
        self.rank, self.size = ranks.get_rank(), ranks.get_world_size()
    def all_reduce(self, array):
        ranks.all_reduce(torch.from_numpy(array))
file, link = open_model(path), Process()
plan, batch = record(build(file.metadata, weights_of(file), 64).forward), Batch(32, 32, 2, 4)
tokens = [3, 1, 4, 1, 5, 9, 2, 6]
for name, part in {"one": plan, "two": shard(plan, link)}.items():
    program = backend("reference").compile(part, batch, Capacity(8, 2, "f32"))
    found = program.launch(batch.fill([Span(tokens, 0, [0], 0, range(8))])).result()
    np.save(f"{out}/{name}.{link.rank}.npy", found)
"""


def test_two_processes_by_torch_distributed(stories: Path, tmp_path: Path) -> None:
    import_peer("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", PROCESS, str(stories), str(tmp_path)]
    processes = [subprocess.Popen(command, env={**os.environ, **places, "RANK": str(rank)}) for rank in range(2)]
    assert [process.wait(120) for process in processes] == [0, 0]
    one, *two = (np.load(tmp_path / name) for name in ("one.0.npy", "two.0.npy", "two.1.npy"))
    assert np.array_equal(two[0], two[1]) and error(two[0], one) < 1e-11
