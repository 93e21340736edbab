"""How much memory there is, how much of it the cache may have, and who has it."""

from dataclasses import dataclass
from pathlib import Path
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
NEAR = 2  # times what all sequences' windows can hold; what they do not is kept for others to begin with
CGROUPS = [  # limit, use, statistics: of versions 2 and 1
    tuple(Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory.current", "memory.stat")),
    tuple(
        Path("/sys/fs/cgroup/memory", name)
        for name in ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
    ),
]


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
    near: int = 0  # places for pages of windowed layers, ...
    reach: int = 0  # ... which see so far; 0: these have memory for every page


def find_room(
    plan: Plan, weights: int, context: int, sequences: int, step: int, kv_type: KvType, cache_tokens: int | None
) -> Room:
    """Pages for `cache_tokens`; without it as many contexts as sequences, if they fit a share of the free memory."""
    free = available_bytes()
    spare = max(0, int(SHARE * (free - weights)))
    size = state_bytes(plan, kv_type, PAGE)
    recurrent = any(state.kind == "recurrent" for state in plan.states)
    checkpoints = min(CHECKPOINTS * sequences, max(1, spare // 4 // max(1, size["slot"]))) if recurrent else None
    reach = max((state.reach for state in plan.states), default=0)
    near = NEAR * (sequences * (-(-reach // PAGE) + 3) + -(-step // PAGE)) if reach else 0
    if cache_tokens is not None:
        return _divide(-(-cache_tokens // PAGE), checkpoints, near, reach)
    one = -(-context // PAGE)
    least = one * size["page"] + min(one, near) * size["near"] + sequences * size["slot"]
    if least > free:
        raise CapacityError(
            f"a context of {context} tokens takes {least} bytes of memory and {free} are free: "
            "load the model with a smaller context, fewer max_sequences or another kv_type"
        )
    pages = spare // max(1, size["page"] + size["near"])
    if pages > near:
        pages = (spare - near * size["near"]) // max(1, size["page"])
    return _divide(max(one, min(one * sequences, pages)), checkpoints, near, reach)


def _divide(pages: int, checkpoints: int | None, near: int, reach: int) -> Room:
    """Windowed layers get places of their own where these are fewer than pages."""
    return Room(pages, checkpoints, near, reach) if near < pages else Room(pages, checkpoints)


def available_bytes() -> int:
    """Memory that can be had without swapping, also in a container."""
    free = int(psutil.virtual_memory().available)
    limits = [left for files in CGROUPS if (left := _cgroup_left(*files)) is not None]
    return min([free, *limits])


def measure(core: "Core") -> Memory:
    """Who has how much now."""
    runner = core.runner
    pages, near, states = runner.pages, runner.pages.near, runner.program.states
    page, place = states.size("page"), states.size("near")
    return Memory(
        weights=runner.weight_bytes,
        cache=page * pages.total + place * near.total,
        cache_used=page * (pages.total - pages.free) + place * (near.total - near.free),
        cache_kept=page * pages.kept + place * near.kept,
        states=states.size("slot") * runner.capacity.slots,
        workspace=sum(program.workspace for program in runner.programs),
        resident=int(psutil.Process().memory_info().rss),
        available=available_bytes(),
    )


def _cgroup_left(limit: Path, used: Path, statistics: Path) -> int | None:
    """What a container may still use; None if there is no limit."""
    try:
        lines = dict(line.split(maxsplit=1) for line in statistics.read_text().splitlines())
        taken = int(used.read_text()) - int(lines.get("total_inactive_file", lines.get("inactive_file", 0)))
        return max(0, int(limit.read_text()) - taken)
    except (OSError, ValueError):  # "max": no limit
        return None
