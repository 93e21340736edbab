"""The tasks that are timed: a number of tokens in a number of sequences, on a KV cache of a given depth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["prompt", "generate", "answer"]
Tokens = list[list[int]]  # a list for each sequence


@dataclass(frozen=True, slots=True)
class Task:
    """`prompt`: prefill. `generate`: decoding, a step for each token. `answer`: prefill and decoding of a request."""

    kind: Kind
    tokens: int  # of each sequence
    batch: int = 1  # sequences at a time
    depth: int = 0  # tokens of each sequence in the KV cache when the clock starts
    prompt: int = 0  # prompt tokens of each sequence of an `answer`, which are timed

    @property
    def name(self) -> str:
        """The name that llama-bench would give it, such as pp512 or tg128 @ d4096."""
        side = f" b{self.batch}" if self.batch > 1 else ""
        what = {"prompt": "pp", "generate": "tg", "answer": f"pg{self.prompt}+"}[self.kind]
        return f"{what}{self.tokens}{side}" + f" @ d{self.depth}" * bool(self.depth)

    @property
    def work(self) -> int:
        """Tokens of all sequences; of an answer, the generated ones."""
        return self.tokens * self.batch

    @property
    def reach(self) -> int:
        """Tokens of a sequence at the end."""
        return self.depth + self.prompt + self.tokens

    def draw(self, seed: int, vocab: int) -> tuple[Tokens, Tokens]:
        """Random tokens of each sequence: those that fill the KV cache, and those to compute (of a generation, one).

        Another seed, task or depth gives other tokens, so that no prefix is cached from an earlier run.
        """
        rng = np.random.default_rng([seed, self.kind == "prompt", self.tokens, self.batch, self.depth])
        fresh = {"prompt": self.tokens, "generate": 1, "answer": self.prompt}[self.kind]
        drawn = rng.integers(0, vocab, (self.batch, self.depth + fresh)).tolist()
        return [row[: self.depth] for row in drawn], [row[self.depth :] for row in drawn]


def grid(prompts: Sequence[int], generates: Sequence[int], batches: Sequence[int], depths: Sequence[int]) -> list[Task]:
    """Prompts at every depth, and generations at every depth and batch size; lengths of 0 are left out."""
    tasks = [Task("prompt", n, 1, d) for d in depths for n in prompts if n]
    tasks += [Task("generate", n, b, d) for d in depths for b in batches for n in generates if n]
    return list(dict.fromkeys(tasks))
