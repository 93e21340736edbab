"""What is timed: so many tokens, in so many sequences, after so many that are already there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["prompt", "generate", "answer"]
Tokens = list[list[int]]  # a list for each sequence


@dataclass(frozen=True, slots=True)
class Task:
    """`prompt`: tokens that are known are processed together. `generate`: one step for each token. `answer`: both."""

    kind: Kind
    tokens: int  # of each sequence
    batch: int = 1  # sequences side by side
    depth: int = 0  # tokens of each sequence that are in the cache when the clock starts
    prompt: int = 0  # tokens of each sequence that come before its answer, when the clock runs already

    @property
    def name(self) -> str:
        """As llama-bench writes it."""
        side = f" b{self.batch}" if self.batch > 1 else ""
        what = {"prompt": "pp", "generate": "tg", "answer": f"pg{self.prompt}+"}[self.kind]
        return f"{what}{self.tokens}{side}" + f" @ d{self.depth}" * bool(self.depth)

    @property
    def work(self) -> int:
        """Tokens in all; of an answer, those that are made."""
        return self.tokens * self.batch

    @property
    def reach(self) -> int:
        """Tokens of one sequence when it is done."""
        return self.depth + self.prompt + self.tokens

    def draw(self, seed: int, vocab: int) -> tuple[Tokens, Tokens]:
        """Random tokens to be there before, and those that the clock sees: of a generation, the first of them.

        Another seed, task or depth gives other tokens, so that nothing is known from the run before.
        """
        rng = np.random.default_rng([seed, self.kind == "prompt", self.tokens, self.batch, self.depth])
        fresh = {"prompt": self.tokens, "generate": 1, "answer": self.prompt}[self.kind]
        drawn = rng.integers(0, vocab, (self.batch, self.depth + fresh)).tolist()
        return [row[: self.depth] for row in drawn], [row[self.depth :] for row in drawn]


def grid(prompts: Sequence[int], generates: Sequence[int], batches: Sequence[int], depths: Sequence[int]) -> list[Task]:
    """Every prompt at every depth, and every generation at every depth and batch size; 0 tokens are left out."""
    tasks = [Task("prompt", n, 1, d) for d in depths for n in prompts if n]
    tasks += [Task("generate", n, b, d) for d in depths for b in batches for n in generates if n]
    return list(dict.fromkeys(tasks))
