"""Sizes of steps that a program is recorded for: the next powers of two."""

from dataclasses import dataclass

from llamina.ops import Value
from llamina.ops.batch import PAGE, Batch

LEAST_CONTEXT = 512  # below it, it makes no difference


def power(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Bucket:
    """The most tokens, outputs and sequences of a step, and the longest context; kernels read the real ones."""

    tokens: int
    outputs: int
    sequences: int
    context: int

    @staticmethod
    def fit(batch: Batch, tokens: int, outputs: int, sequences: int, context: int) -> "Bucket":
        """The bucket of steps of this size; never more than the batch's arrays hold."""
        return Bucket(
            min(power(tokens), len(batch.tokens)),
            min(power(max(1, outputs)), len(batch.outputs)),
            min(power(sequences), len(batch.slots)),
            max(LEAST_CONTEXT, min(power(context), power(PAGE * batch.tables.shape[1]))),
        )

    @staticmethod
    def of(batch: Batch) -> "Bucket":
        """The bucket of the step that a batch holds."""
        context = int(batch.positions[: batch.n_tokens].max(initial=0)) + 1
        return Bucket.fit(batch, batch.n_tokens, batch.n_outputs, batch.n_sequences, context)

    def rows(self, value: Value) -> int:
        return self.tokens if value.rows == "tokens" else self.outputs
