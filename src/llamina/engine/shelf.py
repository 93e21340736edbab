"""Requests put away and taken up again: what a snapshot says, found in an engine and brought back into one."""

from typing import TYPE_CHECKING, Any

import numpy as np

from llamina.backends import UNITS
from llamina.cache import Lease
from llamina.engine.request import Request
from llamina.engine.snapshot import Snapshot, read_request, write_request
from llamina.errors import SnapshotError
from llamina.ops import Unit
from llamina.ops.batch import PAGE

if TYPE_CHECKING:
    from llamina.engine.core import Core


def put_away(engine: "Core", request: Request) -> Snapshot:
    """The request with what is computed of it; of one without a lease, what the prefix tree still has."""
    if request.finish_reason is not None:
        engine.adapters.equip(request)  # others may have their names by now
    header = {
        "model": engine.fingerprint,
        "name": engine.file.metadata.get("general.name", ""),
        "layout": _layout(engine),
        "adapters": engine.adapters.fingerprints(request.adapters),
        "request": write_request(request),
    }
    borrowed = engine.pages.admit(request.known, request.scope) if request.lease is None else None
    lease, computed = request.lease or borrowed, borrowed.found if borrowed else request.computed
    engine.copy_states()
    states = _read(engine, lease, computed) if lease else b""
    if borrowed:
        engine.pages.release(borrowed)
    return Snapshot(header | {"computed": computed}, states)


def take_up(engine: "Core", snapshot: Snapshot) -> Request:
    """The request, running or waiting in this engine unless it was done. Nothing changes if it cannot be."""
    snapshot.check_model(engine.fingerprint)
    header: dict[str, Any] = snapshot.header
    request, computed = read_request(header["request"]), header["computed"]
    done = request.finish_reason is not None
    if not done:
        engine.limits.check_fit(request)
    fits = header["layout"] == _layout(engine)
    if fits and len(snapshot.states) != _size(engine, computed):
        raise SnapshotError(f"the snapshot has {len(snapshot.states)} bytes of states: it was not written by us")
    if engine.adapters.fingerprints(request.adapters) != header["adapters"]:
        names = ", ".join(request.adapters)
        raise SnapshotError(f"the snapshot was made with other adapters than are loaded here as {names}: load those")
    engine.begin(request)
    if request.sampler and header["request"]["sampler"]:
        request.sampler.restore(header["request"]["sampler"])
    lease = _write(engine, request, computed, snapshot.states) if fits and computed else None
    if not done:
        engine.place(request, lease, computed)
    elif lease:
        engine.pages.release(lease)
    return request


def _layout(engine: "Core") -> list[Any]:
    """States are moved between programs of the same layout, on any backend; for another, tokens are computed again."""
    states = engine.program.states
    return [engine.kv_type, PAGE, *(states.exported_size(unit) for unit in UNITS)]


def _parts(engine: "Core", computed: int) -> dict[Unit, range]:
    """The states after so many tokens, in the order in which they are written: pages, those in the window, slot."""
    pages = range(-(-computed // PAGE))
    window = pages[min(len(pages), engine.pages.windows.first(computed)) :]
    return {"page": pages, "window": window, "slot": range(min(computed, 1))}


def _size(engine: "Core", computed: int) -> int:
    return sum(engine.program.states.exported_size(unit) * len(at) for unit, at in _parts(engine, computed).items())


def _indexes(engine: "Core", lease: Lease, unit: Unit, places: range) -> list[int]:
    """Which pages, window pages or slot of the pool they are."""
    if unit == "slot":
        return [lease.slot for _ in places]
    pages = [lease.pages[at] for at in places]
    return [engine.pages.windows[page] for page in pages] if unit == "window" else pages


def _read(engine: "Core", lease: Lease, computed: int) -> bytes:
    parts, states = _parts(engine, computed), engine.program.states
    return b"".join(states.export(unit, _indexes(engine, lease, unit, at)).tobytes() for unit, at in parts.items())


def _write(engine: "Core", request: Request, computed: int, data: bytes) -> Lease | None:
    """The states in a lease of their own; None if there is no room for them now."""
    tokens, states = request.known[:computed], engine.program.states
    lease = engine.pages.admit(tokens, request.scope, reuse=False)
    if lease is None:
        return None
    if not engine.pages.extend(lease, computed, computed):
        engine.pages.release(lease)
        return None
    engine.copy_states()
    start = 0
    for unit, places in _parts(engine, computed).items():
        size = states.exported_size(unit)
        part = np.frombuffer(data, np.uint8, size * len(places), start).reshape(len(places), size)
        states.restore(unit, _indexes(engine, lease, unit, places), part)
        start += part.nbytes
    engine.pages.keep(lease, request.known, computed)
    return lease
