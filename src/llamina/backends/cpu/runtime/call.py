"""Kernel calls: as lowering writes them down, with names and places; and linked, with addresses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from llamina.backends.cpu.runtime.arena import Argument, Buffer, Ref
from llamina.errors import KernelError

if TYPE_CHECKING:
    from llamina.backends.cpu.jit import Kernel


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel's name and its arguments by name."""

    kernel: str
    args: dict[str, Argument]
    step: int  # the plan's step it belongs to


class LinkedCall:
    """A call and its kernel. It writes the buffers of those parameters that the kernel is declared to write.

    Raises KernelError if names do not match, or if the kernel stores through a buffer without being declared to.
    """

    def __init__(self, call: KernelCall, kernel: "Kernel") -> None:
        self.call, self.kernel = call, kernel
        if odd := set(kernel.params) ^ call.args.keys():
            raise KernelError(f"{call.kernel} is called with other arguments than it has: {sorted(odd)}")
        refs = {name: ref.buffer for name, ref in call.args.items() if isinstance(ref, Ref)}
        if secret := refs.keys() & kernel.stores - kernel.writes:
            raise KernelError(f"{call.kernel} stores through {sorted(secret)} and is not declared to write it")
        self.writes: list[Buffer] = [buffer for name, buffer in refs.items() if name in kernel.writes]
        self.reads: list[Buffer] = [buffer for name, buffer in refs.items() if name not in kernel.writes]

    def arguments(self) -> npt.NDArray[np.int64]:
        """The arguments in the kernel's order, floats as the bits of doubles."""
        slots = np.zeros(len(self.kernel.params), np.int64)
        for i, name in enumerate(self.kernel.params):
            value = self.call.args[name]
            if isinstance(value, Ref):
                slots[i] = value.address
            elif name in self.kernel.floats:
                slots[i : i + 1].view(np.float64)[0] = value
            else:
                slots[i] = value
        return slots
