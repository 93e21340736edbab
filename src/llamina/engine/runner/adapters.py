"""The adapters an engine has loaded, and who uses them how."""

import os
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path
from typing import Any

from llamina.adapters import Adapter, read_adapter
from llamina.engine.sequence import Sequence
from llamina.errors import CapacityError, RequestError
from llamina.ops import LowRank
from llamina.ops.batch import ADAPTERS, Applied
from llamina.plan import Plan, adapt, adaptable


class Adapters:
    """Each loaded adapter has a name and a slot. `matrices` are those that the program has a place beside."""

    def __init__(self, metadata: Mapping[str, Any], plan: Plan) -> None:
        self._metadata, self._plan = metadata, plan
        self._adaptable = adaptable(plan)
        self._loaded: dict[str, tuple[int, Adapter]] = {}
        self.matrices: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        return list(self._loaded)

    def plan(self, matrices: Collection[str]) -> Plan:
        """The model's plan with a place beside these matrices."""
        return adapt(self._plan, matrices)

    def slots(self) -> dict[int, Mapping[str, LowRank]]:
        """What is in each slot that is taken."""
        return {slot: adapter.pairs for slot, adapter in self._loaded.values()}

    def read(self, path: str | os.PathLike[str], name: str | None) -> tuple[str, Adapter]:
        """An adapter that fits the model, and a name that is free for it."""
        name = Path(path).name.removesuffix(".gguf") if name is None else name
        if name in self._loaded:
            raise RequestError(
                f"an adapter {name!r} is loaded already: unload it, or give this one another name", "name"
            )
        if len(self._loaded) == ADAPTERS:
            raise CapacityError(f"{ADAPTERS} adapters are loaded, and there is no room for more: unload one")
        adapter = read_adapter(path, self._metadata)
        adapter.check(str(self._metadata.get("general.architecture")), self._adaptable)
        return name, adapter

    def add(self, name: str, adapter: Adapter) -> int:
        """Remember an adapter; the slot that it gets."""
        slot = min(set(range(ADAPTERS)) - self.slots().keys())
        self._loaded[name] = slot, adapter
        return slot

    def remove(self, name: str) -> int:
        """Forget an adapter; the slot that it had."""
        self._find(name, "name")
        return self._loaded.pop(name)[0]

    def _find(self, name: str, param: str) -> tuple[int, Adapter]:
        if name not in self._loaded:
            known = f"loaded are {', '.join(self._loaded)}" if self._loaded else "none is loaded"
            raise RequestError(f"there is no adapter {name!r}: {known}", param)
        return self._loaded[name]

    def equip(self, sequence: Sequence) -> None:
        """Find the adapters that a request names, and where in its prompt they begin to act."""
        applied: list[Applied] = []
        key: list[Hashable] = []
        for name, scale in sequence.request.adapters.items():
            slot, adapter = self._find(name, "adapters")
            if scale:
                start = _start(name, adapter, sequence)
                applied.append(Applied(slot, float(scale), start))
                key.append((adapter.fingerprint, float(scale), start))
        sequence.applied, sequence.adapter_key = tuple(applied), tuple(key)

    def fingerprints(self, names: Collection[str]) -> dict[str, str]:
        """Which adapters are meant by names, by their contents."""
        return {name: self._find(name, "adapters")[1].fingerprint for name in names}


def _start(name: str, adapter: Adapter, sequence: Sequence) -> int:
    """0, or where the prompt says the adapter's invocation for the last time."""
    wanted = list(adapter.invocation)
    if not wanted:
        return 0
    if sequence.request.context_shift:
        raise RequestError(
            f"adapter {name!r} acts from its invocation on, which a context_shift may drop: use one or the other",
            "context_shift",
        )
    prompt = sequence.known[: len(sequence.known) - len(sequence.generated)]
    for start in range(len(prompt) - len(wanted), -1, -1):
        if prompt[start : start + len(wanted)] == wanted:
            return start
    raise RequestError(
        f"adapter {name!r} acts from its invocation on, and the tokens {wanted} are not in the prompt: add them, or "
        "leave the adapter out",
        "adapters",
    )
