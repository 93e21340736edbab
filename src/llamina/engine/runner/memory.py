"""How much memory there is, how much of it the cache may have, and who has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import psutil

from llamina.backends import KvType, state_bytes
from llamina.errors import CapacityError
from llamina.ops.batch import PAGE
from llamina.plan import Plan

if TYPE_CHECKING:
    from llamina.engine.core import Core

SHARE = 0.5  # of the memory that is left beside the weights
CHECKPOINTS = 4  # kept recurrent states for each sequence that may run, if they fit
WINDOW_SHARE = 2  # times what all sequences' windows can hold; the rest is kept for others to begin with


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. What is reserved becomes resident when it is used for the first time."""

    weights: int  # mapped from the file, or copied from it into huge pages
    cache: int  # reserved for pages, and for what windowed layers have of them
    cache_used: int  # pages that sequences hold
    cache_kept: int  # pages that are kept in case their tokens come again
    states: int  # reserved for recurrent states
    workspace: int  # reserved for what a step computes
    resident: int  # of this process, everything in it included
    available: int  # still to be had on this machine


@dataclass(frozen=True, slots=True)
class Room:
    """What the states of sequences get."""

    pages: int
    checkpoints: int | None  # None: the model has no recurrent states
    window_pages: int = 0  # of sliding-window layers, ...
    reach: int = 0  # ... which see so far; 0: these have memory for every page


class Part(NamedTuple):
    """A plan on a device that has so much memory left, of which weights take some."""

    plan: Plan
    free: int
    weights: int

    @property
    def spare(self) -> int:
        return max(0, int(SHARE * (self.free - self.weights)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the states of sequences are for."""

    context: int
    sequences: int
    step: int  # the most tokens of one
    kv_type: KvType
    cache_tokens: int | None = None

    def windows(self, reach: int) -> int:
        """Window pages of layers that see so far."""
        if not reach:
            return 0
        return WINDOW_SHARE * (self.sequences * (-(-reach // PAGE) + 3) + -(-self.step // PAGE))

    def least(self, plan: Plan) -> int:
        """Bytes of a plan's states for one context, or for `cache_tokens`, and all recurrent states."""
        size, pages = state_bytes(plan, self.kv_type), -(-(self.cache_tokens or self.context) // PAGE)
        windows = min(pages, self.windows(_reach(plan)))
        return pages * size["page"] + windows * size["window"] + self.sequences * size["slot"]


def find_room(parts: Sequence[Part], wanted: Wanted) -> Room:
    """Pages for `cache_tokens`; without it as many contexts as sequences, if they fit a share of the free memory.

    All parts of a model have the same pages, so it is what fits each of them. Raises CapacityError if one context does
    not.
    """
    reach = max(_reach(part.plan) for part in parts)
    windows = wanted.windows(reach)
    checkpoints = min((n for part in parts if (n := _checkpoints(part, wanted)) is not None), default=None)
    if wanted.cache_tokens is not None:
        pages = -(-wanted.cache_tokens // PAGE)
    else:
        pages = min(_pages(part, wanted, windows) for part in parts)
    # sliding-window layers get a pool of their own where that is smaller than the pages
    return Room(pages, checkpoints, windows, reach) if windows < pages else Room(pages, checkpoints)


def _reach(plan: Plan) -> int:
    return max((state.reach for state in plan.states), default=0)


def _checkpoints(part: Part, wanted: Wanted) -> int | None:
    if not any(state.kind == "recurrent" for state in part.plan.states):
        return None
    size = state_bytes(part.plan, wanted.kv_type)["slot"]
    return min(CHECKPOINTS * wanted.sequences, max(1, part.spare // 4 // max(1, size)))


def _pages(part: Part, wanted: Wanted, windows: int) -> int:
    size, least = state_bytes(part.plan, wanted.kv_type), wanted.least(part.plan)
    if least > part.free:
        raise CapacityError(
            f"a context of {wanted.context} tokens takes {least} bytes of memory and {part.free} are free: "
            "load the model with a smaller context, fewer max_sequences or another kv_type"
        )
    one = -(-wanted.context // PAGE)
    pages = part.spare // max(1, size["page"] + size["window"])
    if pages > windows:
        pages = (part.spare - windows * size["window"]) // max(1, size["page"])
    return max(one, min(one * wanted.sequences, pages))


def measure(core: "Core") -> Memory:
    """Who has how much now."""
    runner = core.runner
    pages, windows, states = runner.pages, runner.pages.windows, runner.program.states
    page, window = states.size("page"), states.size("window")
    return Memory(
        weights=runner.weight_bytes,
        cache=page * pages.total + window * windows.total,
        cache_used=page * (pages.total - pages.free) + window * (windows.total - windows.free),
        cache_kept=page * pages.kept + window * windows.kept,
        states=states.size("slot") * runner.capacity.slots,
        workspace=sum(program.workspace for program in runner.programs),
        resident=int(psutil.Process().memory_info().rss),
        available=runner.backend.free_bytes(),
    )
