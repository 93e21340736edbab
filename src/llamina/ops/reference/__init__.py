"""What every operation means, in NumPy: the truth that kernels are compared with."""

from llamina.ops.reference import adapted, kept, plain  # noqa: F401 (they fill the table)
from llamina.ops.reference.registry import OPS, Array, Reference

__all__ = ["OPS", "Array", "Reference"]
