"""Sizes of steps that a program is recorded for: the next powers of two."""

from dataclasses import dataclass

from llamina.ops import Value
from llamina.ops.batch import Batch


def power(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Bucket:
    """The most tokens, outputs and sequences of a step; kernels read the real counts on the device."""

    tokens: int
    outputs: int
    sequences: int

    @staticmethod
    def of(batch: Batch, tokens: int, outputs: int, sequences: int) -> "Bucket":
        """The bucket of a batch with so many of each; never more than its arrays hold."""
        return Bucket(
            min(power(tokens), len(batch.tokens)),
            min(power(max(1, outputs)), len(batch.outputs)),
            min(power(sequences), len(batch.slots)),
        )

    def rows(self, value: Value) -> int:
        return self.tokens if value.rows == "tokens" else self.outputs
