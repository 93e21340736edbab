"""Slots as llama-server has them: a place for every sequence that may run at once, which remembers the last one there.

The scheduler knows no slots. A slot is a number by which a running sequence is listed, and under which the KV cache
of the last one can be saved to a file and restored.
"""

import os
import re
import threading
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from llamina.engine import Engine, Sequence
from llamina.engine.snapshot.format import Snapshot
from llamina.engine.snapshot.transfer import take_snapshot
from llamina.errors import RequestError, SnapshotError

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")


class Slot:
    """The sequence that was given to a slot last, running or done."""

    def __init__(self) -> None:
        self.sequence: Sequence | None = None
        self.turn = -1  # when that was

    @property
    def busy(self) -> bool:
        return self.sequence is not None and self.sequence.queued and not self.sequence.done


class Slots:
    """The slots of an engine. Any thread may ask."""

    def __init__(self, engine: Engine) -> None:
        self._slots = [Slot() for _ in range(engine.runner.budget.sequences)]
        self._turns = count()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, id: int) -> Slot:
        """Raises RequestError if there is no such slot."""
        if not 0 <= id < len(self._slots):
            raise RequestError(f"there is no slot {id}: slots are 0 to {len(self._slots) - 1}", "id_slot")
        return self._slots[id]

    def take(self, sequence: Sequence, wanted: int = -1) -> int:
        """The slot that a sequence gets: the one that is wanted, else of the idle ones the least recently used."""
        with self._lock:
            idle = [slot for slot in self._slots if not slot.busy] or self._slots
            slot = self[wanted] if wanted != -1 else min(idle, key=lambda slot: slot.turn)
            slot.sequence, slot.turn = sequence, next(self._turns)
            return self._slots.index(slot)


_slots: WeakKeyDictionary[Engine, Slots] = WeakKeyDictionary()
_making = threading.Lock()


def slots_of(engine: Engine) -> Slots:
    """The slots of an engine, always the same."""
    with _making:
        if engine not in _slots:
            _slots[engine] = Slots(engine)
        return _slots[engine]


def save(engine: Engine, id: int, folder: str, filename: str) -> dict[str, Any]:
    """Write the KV cache of a slot's sequence into a file of the folder: {"tokens", "bytes"}.

    A file that is there is replaced as a whole. Raises RequestError for an empty slot.
    """
    sequence = slots_of(engine)[id].sequence
    if sequence is None:
        raise RequestError(f"slot {id} is empty: there is nothing to save", "id_slot")
    path = _inside(folder, filename)
    snapshot = engine.stepper.call(take_snapshot, engine.core, sequence)
    data = snapshot.pack()
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise SnapshotError(f"{filename} cannot be written: {error.strerror}") from error
    return {"tokens": snapshot.header["computed"], "bytes": len(data)}


def restore(engine: Engine, id: int, folder: str, filename: str) -> dict[str, Any]:
    """Bring a saved KV cache back, for prompts that begin with the same tokens: {"tokens", "bytes"}."""
    slot, path = slots_of(engine)[id], _inside(folder, filename)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
            data = file.read()
    except OSError as error:
        raise SnapshotError(f"{filename} cannot be read: {error.strerror}") from error
    computed = Snapshot.unpack(data).header["computed"]
    sequence = engine.resume(data)
    engine.cancel(sequence)  # one that was not done would go on
    sequence.done, slot.sequence = True, sequence
    return {"tokens": computed, "bytes": len(data)}


def erase(engine: Engine, id: int) -> int:
    """Forget a slot's sequence; how many tokens it had. Its pages stay in the prefix cache until room is needed."""
    slot = slots_of(engine)[id]
    sequence, slot.sequence = slot.sequence, None
    return len(sequence.known) if sequence is not None else 0


def describe(engine: Engine) -> list[dict[str, Any]]:
    """What each slot is doing, or did last."""
    slots = slots_of(engine)
    return engine.stepper.call(lambda: [_described(slots[id]) for id in range(len(slots))])


def _described(slot: Slot) -> dict[str, Any]:
    sequence = slot.sequence
    if sequence is None:
        return {"busy": False}
    request = sequence.request
    return {
        "busy": slot.busy,
        "task": sequence.id,
        "prompt_tokens": len(request.prompt),
        "computed": sequence.computed,
        "cached_tokens": sequence.cached or 0,
        "generated": len(sequence.generated),
        "newline": "\n" in sequence.text,
        "sampling": asdict(request.sampling),
        "max_tokens": request.max_tokens,
        "n_keep": request.n_keep,
        "ignore_eos": request.ignore_eos,
        "logprobs": request.logprobs or 0,
        "adapters": dict(request.adapters),
        "speculative": not sequence.drafting.off,
    }


def _inside(folder: str, filename: str) -> Path:
    """The path of a plain file name in a folder. Raises RequestError for anything that leads elsewhere."""
    if not FILE_NAME.fullmatch(filename) or ".." in filename:
        message = f"filename is {filename!r}: must be up to 201 letters, digits, '.', '_' and '-'"
        raise RequestError(message, "filename")
    root = Path(folder).resolve()
    path = root / filename
    if path.is_symlink() or not path.resolve().is_relative_to(root):
        raise RequestError(f"{filename} is a link: must be a plain file", "filename")
    return path
