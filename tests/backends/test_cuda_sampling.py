"""Tokens chosen by the GPU's kernels, in Triton's interpreter, beside the host's sampler."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from choices import choose
from llamina.backends.base import NONE_LEFT, NOT_FINITE, Change, Choice
from llamina.sampling import Sampler
from llamina.sampling import Sampling as Params
from skips import import_peer

import_peer("triton")
from llamina.backends.cuda.device import Device  # noqa: E402 (Triton's kernels)
from llamina.backends.cuda.interpreter import Interpreter  # noqa: E402
from llamina.backends.cuda.memory import Buffer, Ref  # noqa: E402
from llamina.backends.cuda.sampling import STAGES, Sampling  # noqa: E402

VOCAB = 9001  # three parts, the last with a group that is not full
ROWS = 8
rng = np.random.default_rng(5)
LOGITS = (4 * rng.standard_normal((ROWS, VOCAB))).astype(np.float32)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn


class Rows:
    """Logits on the device, and what chooses from them."""

    def __init__(self) -> None:
        self.device: Device = Interpreter()
        self._logits, count = (Ref(Buffer(n, self.device.allocate(n)), 0, "i32") for n in (4 * ROWS * VOCAB, 4))
        self._count = count
        logits = Ref(self._logits.buffer, 0, "fp32")
        self._step = Ref(Buffer(8, self.device.allocate(8)), 0, "i32")
        self.sampling = Sampling(self.device, logits, VOCAB, ROWS, ROWS, count, self._step)
        self._steps = 0

    def tokens(self, logits: np.ndarray[Any, Any], choices: list[Choice | None]) -> list[int]:
        self.device.write(self._logits.address, logits)
        self.device.write(self._count.address, np.array([len(logits)], np.int32))
        self._steps += 1
        self.device.write(self._step.address, np.array([self._steps], np.int32))
        return self.sampling.sample(choices, False, self._steps).tokens()


@pytest.fixture(scope="module")
def rows() -> Iterator[Rows]:
    found = Rows()
    yield found
    found.sampling.close()


def test_the_likeliest(rows: Rows) -> None:
    """Of equal ones the first; of some rows, or of all."""
    logits = LOGITS.copy()
    logits[1, [70, 4200, 8999]] = 99
    logits[2, -1] = 50
    want = logits.argmax(1).tolist()
    assert rows.tokens(logits, [Choice()] * ROWS) == want
    assert rows.tokens(logits[:3], [Choice()] * 3) == want[:3]
    found = rows.tokens(logits, [Choice() if i % 2 else None for i in range(ROWS)])
    assert found[1::2] == want[1::2]


def test_rows_with_nothing_to_choose(rows: Rows) -> None:
    logits = LOGITS[:4].copy()
    logits[0] = -np.inf
    logits[1, 4500] = np.nan
    logits[2, 5] = np.inf
    for choice in (Choice(), Choice(0.5, 40)):
        found = rows.tokens(logits, [choice] * 4)
        assert found[:3] == [NONE_LEFT, NOT_FINITE, NOT_FINITE] and found[3] >= 0


DRAWS = {
    "top_k": {"top_k": 5},
    "all stages": {"top_k": 40, "top_p": 0.9, "min_p": 0.05, "temperature": 0.8},
    "top_p": {"top_k": 128, "top_p": 0.3},
    "no mass": {"top_k": 128, "top_p": 0.0},
    "min_p": {"top_k": 100, "min_p": 0.5, "temperature": 3.0},
    "hot": {"top_k": 128, "temperature": 50.0},
    "cold": {"top_k": 64, "temperature": 1e-3},
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws(rows: Rows, name: str) -> None:
    """The first and the last candidate, and some between."""
    numbers = [0.0, 0.1, 0.37, 0.5, 0.73, 0.9, 0.99, 1 - 2**-53]
    choices = [Choice(number, **DRAWS[name]) for number in numbers]  # type: ignore[arg-type]
    assert rows.tokens(LOGITS, [*choices]) == [choose(row, c) for row, c in zip(LOGITS, choices, strict=True)]


def test_equal_logits(rows: Rows) -> None:
    """Of many that are equal, the first are candidates, and they are drawn in their order."""
    logits = np.zeros((ROWS, VOCAB), np.float32)
    logits[::2, 300:] = -0.0
    logits[1::2, ::7] = 1
    choices = [Choice(i / ROWS, 50) for i in range(ROWS)]
    assert rows.tokens(logits, [*choices]) == [choose(row, c) for row, c in zip(logits, choices, strict=True)]


def test_few_tokens_are_allowed(rows: Rows) -> None:
    logits = np.full((2, VOCAB), -np.inf, np.float32)
    logits[:, [3, 8000]] = 1, 2
    assert rows.tokens(logits, [Choice(0.1, 40), Choice(0.95, 40)]) == [8000, 3]


def test_changes_and_masks(rows: Rows) -> None:
    """Biases, penalties, tokens that are ruled out, for some rows beside others that have none."""
    best = LOGITS.argsort(1)[:, ::-1]
    mask = np.zeros(-(-VOCAB // 32) * 4, np.uint8)
    mask.view(np.uint32)[200:] = 0xFFFFFFFF
    changes = [Change(int(t), repeat=1.5, penalty=0.25 * i) for i, t in enumerate(best[1, :200])]
    choices: list[Choice | None] = [
        Choice(changes=[Change(int(best[0, 0]), -np.inf), Change(17, 100.0)]),
        Choice(0.4, 40, changes=changes),
        None,
        Choice(mask=mask.view(np.uint32)),
        Choice(0.6, 40, mask=mask.view(np.uint32)[::-1].copy()),
        Choice(),
        Choice(changes=[Change(int(t), -np.inf) for t in best[6, :3]]),
        Choice(0.5, 40, 0.95, 0.05, 0.8),
    ]
    found = rows.tokens(LOGITS.copy(), choices)
    for row, choice in enumerate(choices):
        assert choice is None or found[row] == choose(LOGITS[row], choice), row


def test_the_hosts_sampler_says_the_same(rows: Rows) -> None:
    """The same token for the same logits, seed and position."""
    history = [5, 9, 9, 4000, 12]
    for options in (
        {},
        {"temperature": 0.0},
        {"repeat_penalty": 1.3, "frequency_penalty": 0.4, "logit_bias": {9: 8.0, 7: 5.0}},
        {"top_p": 0.4, "min_p": 0.0, "temperature": 2.0},
        {"temperature": 0.0, "presence_penalty": 2.0, "banned_tokens": [1, 2, 3]},
    ):
        sampler = Sampler(Params(seed=11, **options), VOCAB)  # type: ignore[arg-type]
        assert sampler.handover.stages <= STAGES
        choices = [sampler.choice(history, position) for position in range(ROWS)]
        want = [sampler.sample(LOGITS[i].copy(), history, i) for i in range(ROWS)]
        assert rows.tokens(LOGITS.copy(), [*choices]) == want


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 0},
        {"top_k": 300},
        {"samplers": ["temperature", "top_k"]},
        {"dynatemp_range": 0.5},
        {"mirostat": 2},
        {"typical_p": 0.9},
        {"xtc_probability": 0.5},
        {"repeat_penalty": 1.1, "repeat_last_n": -1},
        {"dry_multiplier": 0.8},
    ],
)
def test_the_host_keeps_what_is_rare(options: dict[str, Any]) -> None:
    assert not Sampler(Params(**options), VOCAB).handover.stages <= STAGES
