"""A request's sampler: the stages that its parameters need, in order, built once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from llamina.backends.base import Choice
from llamina.errors import InvalidSampling
from llamina.sampling import stages
from llamina.sampling.bad_words import BadWords, Tokens
from llamina.sampling.candidates import Candidates, Floats, Ints, Stage
from llamina.sampling.choose import draw, likeliest
from llamina.sampling.handover import check_token, handover
from llamina.sampling.mirostat import Mirostat
from llamina.sampling.params import Sampling
from llamina.sampling.penalties import Breakers, Dry, penalize
from llamina.sampling.random import CHOICE, Random

if TYPE_CHECKING:
    from llamina.grammar.constraint import Constraint
    from llamina.grammar.lazy import Lazy

LogitsProcessor = Callable[[Sequence[int], Floats], Floats]
Active = list[tuple[str, Stage]]  # stages that have an effect, by name, in order

PENALTIES = {"penalties", "dry"}  # these may make another token the likeliest
DROP_LIKELIEST = {"typical_p", "xtc"}  # these may drop the likeliest


class Sampler:
    """Samples the tokens of one sequence. The same seed, stream and tokens give the same draw."""

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
        ends: Iterable[int] = (),
        ends_from: int = 0,
        words: Sequence[Tokens] = (),
        words_from: int = 0,
        on_host: Iterable[str] = (),
    ) -> None:
        """The tokens of `ends` are sampled from the position `ends_from` on; `words` that begin at `words_from`, or
        later, are not completed; `on_host` is why no backend may sample."""
        self._stream = stream
        self.random = Random(params.seed, stream)
        self._processor = processor
        self.constraint = constraint
        of_one = [word[0] for word in words if len(word) == 1]
        self._biased, self._bias = _bias(params, [*suppressed, *of_one], vocab)
        self._bad_words = BadWords([word for word in words if len(word) > 1], words_from)
        active, greedy = _effective(_active(params, breakers or {}), params)
        self._stages = [stage for _, stage in active]
        self._choose: Callable[[Candidates], int] = likeliest if greedy else draw
        self._tries_first = greedy and all(name in PENALTIES for name, _ in active)
        self._ends, self._ends_from = np.array([*ends], np.intp), ends_from
        mirostat = params.mirostat and not greedy
        beside = {
            "min_tokens": ends_from,
            "mask": constraint,
            "logits_processor": processor,
            "mirostat": mirostat,
            "bad_words": self._bad_words,
        }
        more = [*on_host, *(name for name, there in beside.items() if there)]
        bias = dict(zip(self._biased.tolist(), self._bias.tolist(), strict=True))
        self.handover = handover(params, [name for name, _ in active], greedy, bias, more)
        self._draws = not greedy
        if mirostat:
            self._choose = Mirostat(params.mirostat, params.mirostat_tau, params.mirostat_eta, vocab)

    def sample(self, logits: Floats, history: Sequence[int], position: int | None = None) -> int:
        """Return the token after `history`. Stages write into `logits`. Raises InvalidSampling if none can be chosen.

        `position` counts the random numbers: the token's own, even if old tokens are missing from the history.
        """
        if self._processor is not None:
            logits = _processed(self._processor, logits, history)
        if len(self._biased):
            logits[self._biased] += self._bias
        position = len(history) if position is None else position
        if position < self._ends_from:
            logits[self._ends] = -np.inf
        if self._bad_words:
            self._bad_words.ban(logits, history, position)
        candidates = Candidates(logits, history, self.random, position)
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

    def choice(self, history: Sequence[int], position: int) -> Choice:
        """Return how a backend that has the stages of `handover` chooses the token. Raises InvalidGrammar."""
        number = self.random.uniform(position, CHOICE) if self._draws else None
        choice = self.handover.choice(history, number)
        return choice if self.constraint is None else replace(choice, mask=self.constraint.mask())

    def accept(self, token: int) -> None:
        """Go on after a token that a backend has chosen. Raises InvalidSampling if it found none."""
        check_token(token)
        if self.constraint is not None:
            self.constraint.consume(token)

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
        """Return the tokens that the grammar leaves no choice about; none if some tokens are banned."""
        if self.constraint is None or self._bad_words or np.isneginf(self._bias).any():
            return []
        return self.constraint.forced()

    @property
    def done(self) -> bool:
        """Whether the grammar allows no more tokens."""
        return self.constraint is not None and self.constraint.done

    def state(self) -> dict[str, Any]:
        """Return the state that draws depend on: the seed, and Mirostat's `mu`."""
        return {"seed": self.random.seed, "mu": self._choose.mu if isinstance(self._choose, Mirostat) else None}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the state of a sampler with the same parameters."""
        self.random = Random(state["seed"], self._stream)
        if isinstance(self._choose, Mirostat):
            self._choose.mu = state["mu"]


def _active(params: Sampling, breakers: Breakers) -> Active:
    """Return the stages whose parameters are not neutral, in the order of `samplers`."""
    p = params
    penalizes = p.repeat_last_n != 0 and (p.repeat_penalty, p.frequency_penalty, p.presence_penalty) != (1, 0, 0)
    low, high = max(0.0, p.temperature - p.dynatemp_range), p.temperature + p.dynatemp_range
    temperature: Stage | None = partial(stages.temperature, value=p.temperature) if p.temperature != 1 else None
    if p.dynatemp_range:
        temperature = partial(stages.dynamic_temperature, low=low, high=high, exponent=p.dynatemp_exponent)
    by_name: dict[str, Stage | None] = {
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
        "temperature": temperature,
    }
    return [(name, stage) for name in p.samplers if (stage := by_name[name]) is not None]


def _effective(active: Active, params: Sampling) -> tuple[Active, bool]:
    """Return the stages that affect the choice, and whether it is greedy: the likeliest token that they leave."""
    if params.mirostat:
        active = [(name, stage) for name, stage in active if name in PENALTIES or name == "temperature"]
    greedy_at = {"temperature": params.temperature == params.dynatemp_range == 0, "top_k": params.top_k == 1}
    first = next((i for i, (name, _) in enumerate(active) if greedy_at.get(name)), None)
    if first is None:
        return active, False
    before = active[:first]
    if any(name in DROP_LIKELIEST for name, _ in before):
        return before, True
    return [(name, stage) for name, stage in before if name in PENALTIES], True


def _bias(params: Sampling, suppressed: Iterable[int], vocab: int) -> tuple[Ints, Floats]:
    """Return the tokens with a bias, and the biases. Raises InvalidSampling for tokens outside the vocabulary."""
    bias = {**params.logit_bias, **dict.fromkeys([*params.banned_tokens, *suppressed], -np.inf)}
    for name, tokens in (("logit_bias", params.logit_bias), ("banned_tokens", params.banned_tokens)):
        if outside := [token for token in tokens if token >= vocab]:
            raise InvalidSampling(f"{name} has token {outside[0]}, outside the vocabulary of {vocab}", name)
    return np.array([*bias], np.intp), np.array([*bias.values()], np.float32)


def _processed(processor: LogitsProcessor, logits: Floats, history: Sequence[int]) -> Floats:
    """Return the logits that the caller's function returns. Raises InvalidSampling if their shape is another."""
    changed = np.asarray(processor(history, logits), np.float32)
    if changed.shape != logits.shape:
        message = f"logits_processor returned an array of shape {changed.shape}: must be {logits.shape}"
        raise InvalidSampling(message, "logits_processor")
    return changed if changed.flags.writeable else changed.copy()
