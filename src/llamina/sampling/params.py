"""What a request asks of the sampler, checked when it is made."""

import math
from dataclasses import dataclass

from llamina.errors import InvalidSampling


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 is greedy. A parameter at its neutral value leaves its stage out entirely."""

    temperature: float = 0.7
    top_k: int = 40  # 0: off
    top_p: float = 0.9  # 1: off
    min_p: float = 0.0  # 0: off
    repeat_penalty: float = 1.0  # 1: off
    repeat_last_n: int = 64  # how far back the penalty looks; -1: everything
    seed: int | None = None  # None: another draw each time

    def __post_init__(self) -> None:
        _within("temperature", self.temperature, 0, math.inf)
        _whole("top_k", self.top_k, 0)
        _within("top_p", self.top_p, 0, 1)
        _within("min_p", self.min_p, 0, 1)
        _within("repeat_penalty", self.repeat_penalty, 0, math.inf)
        _whole("repeat_last_n", self.repeat_last_n, -1)
        for name in ("top_p", "repeat_penalty"):
            if getattr(self, name) == 0:
                raise InvalidSampling(f"{name} is 0: a number above 0 is expected", name)
        if self.seed is not None:
            _whole("seed", self.seed, 0)


def _within(name: str, value: float, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or math.isnan(value) or math.isinf(value) or not low <= value <= high:
        limits = f"from {low} to {high}" if high < math.inf else f"of at least {low}"
        raise InvalidSampling(f"{name} is {value!r}: a number {limits} is expected", name)


def _whole(name: str, value: int, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value < 1 << 64:
        raise InvalidSampling(f"{name} is {value!r}: a whole number of at least {low} is expected", name)
