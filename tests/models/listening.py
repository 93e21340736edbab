"""Sequences whose logits are remembered."""

import numpy as np
import numpy.typing as npt

from llamina import Engine, Request, Sampling
from llamina.engine import Sequence

Array = npt.NDArray[np.float32]
MADE = 6


class Listener:
    """Sequences whose logits are remembered, row by row as they are sampled (greedily)."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.heard: dict[Sequence, list[Array]] = {}

    def submit(self, tokens: list[int], made: int = MADE, **options: object) -> Sequence:
        request = Request(tokens, Sampling(temperature=0), made, ignore_eos=True, speculate="off", **options)
        return self.listen(self.engine.submit(request))

    def listen(self, sequence: Sequence) -> Sequence:
        rows, draw = self.heard.setdefault(sequence, []), sequence.sample

        def sample(logits: Array) -> list[int]:
            rows.append(logits.copy())
            return draw(logits)

        sequence.sample = sample  # type: ignore[method-assign]
        return sequence

    def run(self, *sequences: Sequence) -> None:
        while any(s.finish_reason is None for s in sequences):
            self.engine.step()

    def alone(self, tokens: list[int], made: int = MADE) -> Array:
        """The logits of a sequence that shares nothing."""
        sequence = self.submit(tokens, made, cache_prompt=False)
        self.run(sequence)
        assert not sequence.cached
        return np.array(self.heard[sequence])
