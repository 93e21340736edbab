"""Requests whose logits are remembered."""

import numpy as np
import numpy.typing as npt

from llamina import Engine, Request, Sampling

Array = npt.NDArray[np.float32]
MADE = 6


class Listener:
    """Requests whose logits are remembered, row by row as they are sampled (greedily)."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.heard: dict[Request, list[Array]] = {}

    def submit(self, tokens: list[int], made: int = MADE, **options: object) -> Request:
        request = Request(tokens, Sampling(temperature=0), made, ignore_eos=True, speculate="off", **options)
        return self.listen(self.engine.submit(request))

    def listen(self, request: Request) -> Request:
        rows, draw = self.heard.setdefault(request, []), request.sample

        def sample(logits: Array) -> int:
            rows.append(logits.copy())
            return draw(logits)

        request.sample = sample  # type: ignore[method-assign]
        return request

    def run(self, *requests: Request) -> None:
        while any(r.finish_reason is None for r in requests):
            self.engine.step()

    def alone(self, tokens: list[int], made: int = MADE) -> Array:
        """The logits of a request that shares nothing."""
        request = self.submit(tokens, made, cache_prompt=False)
        self.run(request)
        assert not request.cached
        return np.array(self.heard[request])
