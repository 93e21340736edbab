"""Snapshots of sequences: taken from an engine, and resumed in one."""

from typing import TYPE_CHECKING, Any

import numpy as np

from llamina.backends import UNITS
from llamina.cache import Lease
from llamina.engine.sequence import Sequence
from llamina.engine.snapshot.format import Snapshot, read_sequence, write_sequence
from llamina.errors import SnapshotError
from llamina.ops import Unit
from llamina.ops.batch import PAGE

if TYPE_CHECKING:
    from llamina.engine.core import Core


def take_snapshot(core: "Core", sequence: Sequence) -> Snapshot:
    """The sequence with what is computed of it; of one without a lease, what the prefix tree still has."""
    core.withdraw()
    if sequence.finish_reason is not None:
        core.runner.adapters.equip(sequence)  # others may have their names by now
    header = {
        "model": core.runner.fingerprint,
        "name": core.runner.file.metadata.get("general.name", ""),
        "layout": _layout(core),
        "adapters": core.runner.adapters.fingerprints(sequence.request.adapters),
        "request": write_sequence(sequence),
    }
    borrowed = core.pages.admit(sequence.known, sequence.scope) if sequence.lease is None else None
    lease = sequence.lease or borrowed
    computed = sequence.computed if sequence.lease else borrowed.found if borrowed else 0
    core.runner.copy_states()
    states = _read(core, lease, computed) if lease else b""
    if borrowed:
        core.pages.release(borrowed)
    return Snapshot(header | {"computed": computed}, states)


def resume(core: "Core", snapshot: Snapshot) -> Sequence:
    """The sequence, running or waiting in this engine unless it was done. Nothing changes if it cannot be."""
    snapshot.check_model(core.runner.fingerprint)
    header: dict[str, Any] = snapshot.header
    sequence, computed = read_sequence(header["request"]), header["computed"]
    done = sequence.finish_reason is not None
    if not done:
        core.limits.check_fit(sequence)
    fits = header["layout"] == _layout(core)
    if fits and len(snapshot.states) != _size(core, computed):
        raise SnapshotError(f"the snapshot has {len(snapshot.states)} bytes of states: it was not written by us")
    if core.runner.adapters.fingerprints(sequence.request.adapters) != header["adapters"]:
        names = ", ".join(sequence.request.adapters)
        raise SnapshotError(f"the snapshot was made with other adapters than are loaded here as {names}: load those")
    if sequence.request.embedded and not done:
        core.runner.check_embedded(sequence.request.embedded)
        core.runner.programs.prepare(sequence.request.reading, embedded=True)
    core.equip(sequence)
    core.join(sequence)
    if sequence.sampler and header["request"]["sampler"]:
        sequence.sampler.restore(header["request"]["sampler"])
    lease = _write(core, sequence, computed, snapshot.states) if fits and computed else None
    if not done:
        core.place(sequence, lease, computed)
    elif lease:
        core.pages.release(lease)
    return sequence


def _layout(core: "Core") -> list[Any]:
    """States are moved between programs of the same layout, on any backend; for another, tokens are computed again."""
    states = core.runner.program.states
    rope = sorted(core.runner.model.config.overrides.given().items())
    return [core.runner.kv_type, PAGE, *(states.exported_size(unit) for unit in UNITS), *map(list, rope)]


def _parts(core: "Core", computed: int) -> dict[Unit, range]:
    """The states after so many tokens, in the order in which they are written: pages, those in the window, slot."""
    pages = range(-(-computed // PAGE))
    window = pages[min(len(pages), core.pages.windows.first(computed)) :]
    return {"page": pages, "window": window, "slot": range(min(computed, 1))}


def _size(core: "Core", computed: int) -> int:
    return sum(core.runner.program.states.exported_size(unit) * len(at) for unit, at in _parts(core, computed).items())


def _indexes(core: "Core", lease: Lease, unit: Unit, places: range) -> list[int]:
    """Which pages, window pages or slot of the pool they are."""
    if unit == "slot":
        return [lease.slot for _ in places]
    pages = [lease.pages[at] for at in places]
    return [core.pages.windows[page] for page in pages] if unit == "window" else pages


def _read(core: "Core", lease: Lease, computed: int) -> bytes:
    parts, states = _parts(core, computed), core.runner.program.states
    return b"".join(states.export(unit, _indexes(core, lease, unit, at)).tobytes() for unit, at in parts.items())


def _write(core: "Core", sequence: Sequence, computed: int, data: bytes) -> Lease | None:
    """The states in a lease of their own; None if there is no room for them now."""
    tokens, states = sequence.known[:computed], core.runner.program.states
    lease = core.pages.admit(tokens, sequence.scope, reuse=False)
    if lease is None:
        return None
    if not core.pages.extend(lease, computed, computed):
        core.pages.release(lease)
        return None
    core.runner.copy_states()
    start = 0
    for unit, places in _parts(core, computed).items():
        size = states.exported_size(unit)
        part = np.frombuffer(data, np.uint8, size * len(places), start).reshape(len(places), size)
        states.restore(unit, _indexes(core, lease, unit, places), part)
        start += part.nbytes
    core.pages.keep(lease, sequence.known, computed)
    return lease
