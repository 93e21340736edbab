"""Sampling parameters, checked when they are made."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llamina.errors import InvalidSampling

# The stages in their default order: llama.cpp's, with our additions before XTC.
ORDER = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "top_a",
    "epsilon_cutoff",
    "eta_cutoff",
    "xtc",
    "temperature",
)
# What logits are changed by or compared with, in float32: bounded, so that nothing of it becomes infinite.
FOR_LOGITS = (
    "frequency_penalty", "presence_penalty", "repeat_penalty", "dry_multiplier", "logit_bias", "top_n_sigma",
)  # fmt: skip
LARGEST = 1e30
ALIASES = {"typ_p": "typical_p"}  # llama.cpp's name


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 is greedy. A parameter at its neutral value leaves its stage out entirely.

    The defaults are llama.cpp's. The command line has no others.
    """

    temperature: float = 0.8
    dynatemp_range: float = 0.0  # temperature ± range, by how sure the model is; 0: off
    dynatemp_exponent: float = 1.0
    top_k: int = 40  # the k likeliest; 0: off
    top_p: float = 0.95  # the likeliest up to this mass; 1: off
    min_p: float = 0.05  # those at least so likely, relative to the likeliest; 0: off
    typical_p: float = 1.0  # the most typical up to this mass; 1: off
    top_n_sigma: float = 0.0  # logits within so many standard deviations of the largest; 0: off
    top_a: float = 0.0  # those at least as likely as top_a times the square of the likeliest; 0: off
    epsilon_cutoff: float = 0.0  # those at least so likely; 0: off
    eta_cutoff: float = 0.0  # the same, lower where the model is unsure; 0: off
    xtc_probability: float = 0.0  # how often all but the last of the tokens over the threshold go; 0: off
    xtc_threshold: float = 0.1  # above 0.5 nothing can go: off
    repeat_penalty: float = 1.0  # 1: off
    frequency_penalty: float = 0.0  # times how often a token occurred; 0: off
    presence_penalty: float = 0.0  # for a token that occurred; 0: off
    repeat_last_n: int = 64  # how far back the three penalties look; -1: everything
    dry_multiplier: float = 0.0  # a penalty for the token that would prolong a repetition; 0: off
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64  # -1: everything
    dry_sequence_breakers: Sequence[str] = ("\n", ":", '"', "*")
    mirostat: int = 0  # 1 or 2: holds the surprise at tau, in the place of all stages that cut
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # added to a token's logit; -inf bans it
    banned_tokens: Sequence[int] = ()
    samplers: Sequence[str] = ORDER  # the stages and their order; one that is not named is left out
    seed: int | None = None  # None: another draw each time

    def __post_init__(self) -> None:
        for name in ("temperature", "dynatemp_range", "dynatemp_exponent", "top_n_sigma", "mirostat_tau"):
            _within(name, getattr(self, name), 0, math.inf)
        for name in ("top_p", "min_p", "typical_p", "top_a", "epsilon_cutoff", "eta_cutoff"):
            _within(name, getattr(self, name), 0, 1)
        for name in ("xtc_probability", "xtc_threshold", "mirostat_eta"):
            _within(name, getattr(self, name), 0, 1)
        for name in ("frequency_penalty", "presence_penalty"):
            _within(name, getattr(self, name), -math.inf, math.inf)
        _within("repeat_penalty", self.repeat_penalty, 0, math.inf)
        if self.repeat_penalty == 0:
            raise InvalidSampling("repeat_penalty is 0: must be above 0", "repeat_penalty")
        _within("dry_multiplier", self.dry_multiplier, 0, math.inf)
        _within("dry_base", self.dry_base, 1, math.inf)
        _whole("top_k", self.top_k, 0)
        _whole("dry_allowed_length", self.dry_allowed_length, 1)
        _whole("repeat_last_n", self.repeat_last_n, -1)
        _whole("dry_penalty_last_n", self.dry_penalty_last_n, -1)
        _whole("mirostat", self.mirostat, 0, 3)
        if self.seed is not None:
            _whole("seed", self.seed, 0)
        self._check_tokens()
        self._check_names()

    def _check_tokens(self) -> None:
        bias, banned = self.logit_bias, self.banned_tokens
        if not isinstance(bias, Mapping):
            raise InvalidSampling(f"logit_bias is {bias!r}: must be a map of tokens to numbers", "logit_bias")
        if not _is_list(banned):
            raise InvalidSampling(f"banned_tokens is {banned!r}: must be a list of tokens", "banned_tokens")
        for token, value in bias.items():
            _whole("logit_bias", token, 0)
            if value != -math.inf:
                _within("logit_bias", value, -math.inf, math.inf)
        for token in banned:
            _whole("banned_tokens", token, 0)

    def _check_names(self) -> None:
        if not _is_list(self.samplers) or not all(ALIASES.get(name, name) in ORDER for name in self.samplers):
            known = ", ".join(ORDER)
            raise InvalidSampling(f"samplers is {self.samplers!r}: must be a list of {known}", "samplers")
        names = tuple(ALIASES.get(name, name) for name in self.samplers)
        if len(set(names)) < len(names):
            raise InvalidSampling(f"samplers is {self.samplers!r}: must name each stage at most once", "samplers")
        object.__setattr__(self, "samplers", names)
        breakers = self.dry_sequence_breakers
        if not _is_list(breakers) or not all(isinstance(text, str) and text for text in breakers):
            message = f"dry_sequence_breakers is {breakers!r}: must be a list of non-empty strings"
            raise InvalidSampling(message, "dry_sequence_breakers")


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _within(name: str, value: float, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and name in FOR_LOGITS and LARGEST < abs(value) < math.inf:
        raise InvalidSampling(f"{name} is {value!r}: must be a number from -{LARGEST:g} to {LARGEST:g}", name)
    if not number or math.isnan(value) or math.isinf(value) or not low <= value <= high:
        above = "a finite number" if low == -math.inf else f"a number of at least {low}"
        expected = f"a number from {low} to {high}" if high < math.inf else above
        raise InvalidSampling(f"{name} is {value!r}: must be {expected}", name)


def _whole(name: str, value: int, low: int, end: int = 1 << 64) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value < end:
        open_end = end == 1 << 64 and not (isinstance(value, int) and value >= end)
        limit = f"of at least {low}" if open_end else f"from {low} to {end - 1}"
        raise InvalidSampling(f"{name} is {value!r}: must be a whole number {limit}", name)
