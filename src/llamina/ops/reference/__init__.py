"""What every operation means, in NumPy: the truth that kernels are compared with."""

from llamina.ops.reference import stateful, stateless  # noqa: F401 (they register operations)
from llamina.ops.reference.registry import OPS, Array, Reference

__all__ = ["OPS", "Array", "Reference"]
