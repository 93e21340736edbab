"""A request's sampler: which stages it needs, in which order, built once."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from llamina.errors import InvalidSampling
from llamina.sampling import stages
from llamina.sampling.candidates import Candidates, Floats, Ints, Stage
from llamina.sampling.choose import draw, likeliest
from llamina.sampling.mirostat import Mirostat
from llamina.sampling.params import Sampling
from llamina.sampling.penalties import Breakers, Dry, penalize
from llamina.sampling.random import Random

if TYPE_CHECKING:
    from llamina.grammar.constraint import Constraint
    from llamina.grammar.lazy import Lazy

LogitsProcessor = Callable[[Sequence[int], Floats], Floats]
Active = list[tuple[str, Stage]]  # stages that do something, by name, in order

LOOK_BACK = {"penalties", "dry"}  # these may make another token the likeliest
DROP_BEST = {"typical_p", "xtc"}  # these may drop it


class Sampler:
    """From logits to a token, for one sequence. The same seed, stream and tokens give the same draw."""

    def __init__(
        self,
        params: Sampling,
        vocab: int,
        *,
        stream: int = 0,
        suppressed: Iterable[int] = (),
        breakers: Breakers | None = None,
        processor: LogitsProcessor | None = None,
        constraint: "Constraint | Lazy | None" = None,
    ) -> None:
        self._stream = stream
        self.random = Random(params.seed, stream)
        self._processor = processor
        self.constraint = constraint
        self._biased, self._bias = _bias(params, suppressed, vocab)
        active, greedy = _without_waste(_active(params, breakers or {}), params)
        self._stages = [stage for _, stage in active]
        self._choose: Callable[[Candidates], int] = likeliest if greedy else draw
        self._tries_first = greedy and all(name in LOOK_BACK for name, _ in active)
        if params.mirostat and not greedy:
            self._choose = Mirostat(params.mirostat, params.mirostat_tau, params.mirostat_eta, vocab)

    def sample(self, logits: Floats, history: Sequence[int], place: int | None = None) -> int:
        """The token after `history`. `logits` is used up: stages write into it.

        `place` tells draws apart; it is where the token comes, unless old tokens are missing from the history.
        """
        if self._processor is not None:
            logits = _processed(self._processor, logits, history)
        if len(self._biased):
            logits[self._biased] += self._bias
        candidates = Candidates(logits, history, self.random, len(history) if place is None else place)
        if self.constraint is not None and self._tries_first:
            return self._try_likeliest(candidates, self.constraint)
        if self.constraint is not None:
            self.constraint.apply(logits)
        if self._stages:
            candidates.check(float(logits.max()))
        for stage in self._stages:
            stage(candidates)
        token = self._choose(candidates)
        if self.constraint is not None:
            self.constraint.consume(token)
        return token

    def _try_likeliest(self, candidates: Candidates, constraint: "Constraint | Lazy") -> int:
        """Greedy sampling needs the grammar's mask only where the likeliest token is not allowed.

        Penalties change the logit of each token by itself, so they may come before the mask.
        """
        for stage in self._stages:
            stage(candidates)
        token = int(candidates.logits.argmax())
        if np.isfinite(candidates.logits[token]) and constraint.accept(token):
            return token
        constraint.apply(candidates.logits)
        token = likeliest(candidates)
        constraint.consume(token)
        return token

    def forced(self) -> list[int]:
        """Tokens that the grammar leaves no choice about; none while some tokens are banned."""
        if self.constraint is None or np.isneginf(self._bias).any():
            return []
        return self.constraint.forced()

    @property
    def done(self) -> bool:
        """The grammar allows nothing more."""
        return self.constraint is not None and self.constraint.done

    def state(self) -> dict[str, Any]:
        """What was left to chance or learnt from draws, as plain values."""
        return {"seed": self.random.seed, "mu": self._choose.mu if isinstance(self._choose, Mirostat) else None}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on as the sampler whose state this is; it must have had the same parameters."""
        self.random = Random(state["seed"], self._stream)
        if isinstance(self._choose, Mirostat):
            self._choose.mu = state["mu"]


def _active(params: Sampling, breakers: Breakers) -> Active:
    """The stages with something to do, in the order asked for."""
    p = params
    penalizes = p.repeat_last_n != 0 and (p.repeat_penalty, p.frequency_penalty, p.presence_penalty) != (1, 0, 0)
    low, high = max(0.0, p.temperature - p.dynatemp_range), p.temperature + p.dynatemp_range
    heat: Stage | None = partial(stages.temperature, value=p.temperature) if p.temperature != 1 else None
    if p.dynatemp_range:
        heat = partial(stages.dynamic_temperature, low=low, high=high, exponent=p.dynatemp_exponent)
    found: dict[str, Stage | None] = {
        "penalties": partial(penalize, params=p) if penalizes else None,
        "dry": Dry(p, breakers) if p.dry_multiplier and p.dry_penalty_last_n else None,
        "top_n_sigma": partial(stages.top_n_sigma, n=p.top_n_sigma) if p.top_n_sigma else None,
        "top_k": partial(stages.top_k, k=p.top_k) if p.top_k else None,
        "typical_p": partial(stages.typical_p, p=p.typical_p) if p.typical_p < 1 else None,
        "top_p": partial(stages.top_p, p=p.top_p) if p.top_p < 1 else None,
        "min_p": partial(stages.min_p, p=p.min_p) if p.min_p else None,
        "top_a": partial(stages.top_a, a=p.top_a) if p.top_a else None,
        "epsilon_cutoff": partial(stages.epsilon_cutoff, epsilon=p.epsilon_cutoff) if p.epsilon_cutoff else None,
        "eta_cutoff": partial(stages.eta_cutoff, eta=p.eta_cutoff) if p.eta_cutoff else None,
        "xtc": partial(stages.xtc, probability=p.xtc_probability, threshold=p.xtc_threshold)
        if p.xtc_probability and p.xtc_threshold <= 0.5
        else None,
        "temperature": heat,
    }
    return [(name, stage) for name in p.samplers if (stage := found[name]) is not None]


def _without_waste(active: Active, params: Sampling) -> tuple[Active, bool]:
    """The stages that matter for what is chosen, and whether that is simply the likeliest they leave."""
    if params.mirostat:
        active = [(name, stage) for name, stage in active if name in LOOK_BACK or name == "temperature"]
    leaves_one = {"temperature": params.temperature == params.dynatemp_range == 0, "top_k": params.top_k == 1}
    first = next((i for i, (name, _) in enumerate(active) if leaves_one.get(name)), None)
    if first is None:
        return active, False
    before = active[:first]
    if any(name in DROP_BEST for name, _ in before):
        return before, True
    return [(name, stage) for name, stage in before if name in LOOK_BACK], True


def _bias(params: Sampling, suppressed: Iterable[int], vocab: int) -> tuple[Ints, Floats]:
    """Tokens whose logits change for every draw, and by how much."""
    bias = {**params.logit_bias, **dict.fromkeys([*params.banned_tokens, *suppressed], -np.inf)}
    for name, tokens in (("logit_bias", params.logit_bias), ("banned_tokens", params.banned_tokens)):
        if outside := [token for token in tokens if token >= vocab]:
            raise InvalidSampling(f"{name} has token {outside[0]}, outside the vocabulary of {vocab}", name)
    return np.array([*bias], np.intp), np.array([*bias.values()], np.float32)


def _processed(processor: LogitsProcessor, logits: Floats, history: Sequence[int]) -> Floats:
    """What the caller's function makes of the logits."""
    found = np.asarray(processor(history, logits), np.float32)
    if found.shape != logits.shape:
        message = f"logits_processor gave an array of shape {found.shape}: {logits.shape} is expected"
        raise InvalidSampling(message, "logits_processor")
    return found if found.flags.writeable else found.copy()
