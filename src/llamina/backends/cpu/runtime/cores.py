"""Which processor each thread of a team stays on, if LLAMINA_PIN asks for that.

It is for machines of one's own with several memory nodes: memory belongs to the node of the thread that first writes
to it, and all that a team writes is fresh. Two teams that are pinned would share the first cores and leave the others.
"""

import os
from pathlib import Path

from llamina.errors import RequestError

TOPOLOGY = Path("/sys/devices/system/cpu")


def pinning() -> bool:
    """Whether threads are to stay where they are put."""
    value = os.environ.get("LLAMINA_PIN", "0")
    if value not in ("0", "1"):
        raise RequestError(f"LLAMINA_PIN is {value!r}: it must be 0 or 1", "LLAMINA_PIN")
    if value == "1" and not hasattr(os, "sched_setaffinity"):
        raise RequestError("LLAMINA_PIN is 1: this system does not let a thread choose its core", "LLAMINA_PIN")
    return value == "1"


def places() -> list[int]:
    """The processors that this process may use, one of each core first, then their siblings."""
    seen: dict[str, int] = {}
    ranked = []
    for processor in sorted(os.sched_getaffinity(0)):
        try:
            core = (TOPOLOGY / f"cpu{processor}" / "topology" / "thread_siblings_list").read_text()
        except OSError:
            core = str(processor)
        seen[core] = seen.get(core, 0) + 1
        ranked.append((seen[core], processor))
    return [processor for _, processor in sorted(ranked)]


def stay(place: int) -> None:
    """Keep the calling thread on a processor."""
    os.sched_setaffinity(0, {place})
