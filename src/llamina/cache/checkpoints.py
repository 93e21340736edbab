"""Checkpoints: recurrent states kept at page boundaries, so that a sequence can begin where another one passed."""

from llamina.cache.prefix import Node
from llamina.ops.batch import PAGE

INTERVAL = 512  # tokens between the checkpoints of a long prompt


class Checkpoints:
    """Slots for kept states, each at a node of the prefix tree; the least recently used is evicted first."""

    def __init__(self, slots: range) -> None:
        self._free = list(reversed(slots))
        self._kept: dict[Node, None] = {}  # in the order of use

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, node: Node, instead: Node | None = None) -> int | None:
        """A slot for the state at `node`, in place of the one at `instead`; None if there are no slots."""
        if instead is not None:
            self.drop(instead)
        if not self._free and self._kept:
            self.drop(next(iter(self._kept)))
        if not self._free:
            return None
        node.slot = self._free.pop()
        self._kept[node] = None
        return node.slot

    def use(self, node: Node) -> int:
        """The slot of a node that has one, which is now the most recently used."""
        assert node.slot is not None
        self._kept[node] = self._kept.pop(node)
        return node.slot

    def drop(self, node: Node) -> None:
        """Free the slot of a node, if it has one."""
        if node.slot is not None:
            del self._kept[node]
            self._free.append(node.slot)
            node.slot = None


def next_stop(start: int, stop: int, known: int, branch: int) -> int:
    """Where to cut tokens [start, stop) of `known`, so that a checkpoint can be kept there; `stop` if nowhere.

    Checkpoints are kept at intervals, where other sequences branched off (`branch`), and at the last page boundary
    before the end of what is known.
    """
    wanted = (start // INTERVAL + 1) * INTERVAL, branch, (known - 1) // PAGE * PAGE
    return min((at for at in wanted if start < at < stop), default=stop)


def is_stop(at: int, known: int, branch: int) -> bool:
    """Whether the state after `at` tokens is to be kept."""
    return at % PAGE == 0 and (at % INTERVAL == 0 or at == branch or known - at <= PAGE)
