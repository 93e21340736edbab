"""How much memory there is, how much of it the cache may have, and who has it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    weights: int  # mapped from the file
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


def find_room(
    plan: Plan,
    free: int,
    weights: int,
    context: int,
    sequences: int,
    step: int,
    kv_type: KvType,
    cache_tokens: int | None,
) -> Room:
    """Pages for `cache_tokens`; without it as many contexts as sequences, if they fit a share of the free memory."""
    spare = max(0, int(SHARE * (free - weights)))
    size = state_bytes(plan, kv_type)
    recurrent = any(state.kind == "recurrent" for state in plan.states)
    checkpoints = min(CHECKPOINTS * sequences, max(1, spare // 4 // max(1, size["slot"]))) if recurrent else None
    reach = max((state.reach for state in plan.states), default=0)
    windows = WINDOW_SHARE * (sequences * (-(-reach // PAGE) + 3) + -(-step // PAGE)) if reach else 0
    if cache_tokens is not None:
        return _divide(-(-cache_tokens // PAGE), checkpoints, windows, reach)
    one = -(-context // PAGE)
    least = one * size["page"] + min(one, windows) * size["window"] + sequences * size["slot"]
    if least > free:
        raise CapacityError(
            f"a context of {context} tokens takes {least} bytes of memory and {free} are free: "
            "load the model with a smaller context, fewer max_sequences or another kv_type"
        )
    pages = spare // max(1, size["page"] + size["window"])
    if pages > windows:
        pages = (spare - windows * size["window"]) // max(1, size["page"])
    return _divide(max(one, min(one * sequences, pages)), checkpoints, windows, reach)


def _divide(pages: int, checkpoints: int | None, windows: int, reach: int) -> Room:
    """Sliding-window layers get a pool of their own where that is smaller than the pages."""
    return Room(pages, checkpoints, windows, reach) if windows < pages else Room(pages, checkpoints)


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
