"""A folder's tensors by GGUF's names: edited, split and stacked, and none forgotten."""

from collections.abc import Iterator, Mapping

from llamina.convert.families import Family
from llamina.convert.lazy import Lazy, stack
from llamina.convert.names import SENSES, UNUSED, WRAPPERS
from llamina.convert.rotation import Rotation
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError, UnsupportedModel

_SUFFIXES = (".weight", ".bias")


def renamed(family: Family, settings: Settings, stored: Mapping[str, Lazy], notes: list[str]) -> dict[str, Lazy]:
    """What the file will hold. What is left out on purpose is said in `notes`."""
    found: dict[str, Lazy] = {}
    stacks: dict[str, dict[int, Lazy]] = {}
    for theirs, tensor in _wanted(family, settings, stored, notes).items():
        for name, slot, edited in places(family, settings, theirs, tensor):
            if slot is not None:
                stacks.setdefault(name, {})[slot] = edited
            elif name in found:
                raise ModelFileError(f"two tensors of the folder would become {name}: one is {theirs}")
            else:
                found[name] = edited
    found |= {name: _stacked(name, parts, settings) for name, parts in stacks.items()}
    if family.rotates:
        found |= {name: Lazy.here(values) for name, values in Rotation.read(settings).factors().items()}
    _check(found, settings)
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def _wanted(family: Family, settings: Settings, stored: Mapping[str, Lazy], notes: list[str]) -> dict[str, Lazy]:
    """The decoder's tensors, without the names of what wraps it."""
    found: dict[str, Lazy] = {}
    left: dict[str, int] = {}
    for theirs, tensor in stored.items():
        short = WRAPPERS.sub("", theirs)
        layer = next((int(part) for part in short.split(".") if part.isdigit()), 0)
        if SENSES.match(theirs):
            left["of vision or sound"] = left.get("of vision or sound", 0) + 1
        elif layer >= settings.layers:
            left["behind the last layer"] = left.get("behind the last layer", 0) + 1
        elif not UNUSED.search(theirs) and not (family.ignored and family.ignored.match(short)):
            if short in found:
                raise ModelFileError(f"two tensors of the folder are {short}: one is {theirs}")
            found[short] = tensor
    if settings.get("tie_word_embeddings", False):
        found.pop("lm_head.weight", None)
    notes += [f"{count} tensors {what} are left out: GGUF keeps the text model" for what, count in left.items()]
    return found


def places(family: Family, settings: Settings, theirs: str, tensor: Lazy) -> Iterator[tuple[str, int | None, Lazy]]:
    """GGUF's names of a tensor, the slot it takes in a stack, and its part, edited."""
    numbers = [part for part in theirs.split(".") if part.isdigit()]
    pattern = ".".join("*" if part.isdigit() else part for part in theirs.split("."))
    suffix = "" if pattern in family.names else next((s for s in _SUFFIXES if pattern.endswith(s)), "")
    targets = family.names.get(pattern.removesuffix(suffix) if suffix else pattern)
    if targets is None:
        raise UnsupportedModel(
            f"{theirs} has no place in {family.architecture}: the folder is of a variant not known here"
        )
    several = " " in targets
    for target in targets.split():
        whole = target.removeprefix("blk.*.") + suffix
        known = family.parts if several else family.edits
        edit = known.get(whole) or known.get(whole.removesuffix(".weight").removesuffix(".bias"))
        name = (target.replace("*", numbers[0]) if numbers else target) + suffix
        stacked = pattern.count("*") > target.count("*")
        yield name, int(numbers[1]) if stacked else None, tensor if edit is None else edit(tensor, settings)


def _stacked(name: str, parts: Mapping[int, Lazy], settings: Settings) -> Lazy:
    expected = settings.get("num_local_experts num_experts n_routed_experts") if "_exps" in name else len(parts)
    missing = sorted(set(range(int(expected or 0))) - set(parts)) or sorted(set(range(len(parts))) - set(parts))
    if missing or len(parts) != expected:
        raise ModelFileError(f"{name} is made of {len(parts)} tensors, where {expected} are expected: fetch the rest")
    return stack([parts[slot] for slot in range(len(parts))], name)


def _check(tensors: Mapping[str, Lazy], settings: Settings) -> None:
    """Refuse a folder that is plainly incomplete."""
    if "token_embd.weight" not in tensors or len(tensors["token_embd.weight"].shape) != 2:
        raise ModelFileError("the folder has no embeddings of tokens: fetch the rest of its weights")
    layers = {int(name.split(".")[1]) for name in tensors if name.startswith("blk.")}
    if missing := sorted(set(range(settings.layers)) - layers):
        raise ModelFileError(f"the folder has no tensors of layer {missing[0]}: fetch the rest of its weights")


def _order(name: str) -> tuple[int, int, str]:
    """Embeddings, layers one after the other, then the end."""
    if name.startswith("blk."):
        return 1, int(name.split(".")[1]), name
    return 2 if name.startswith("output") else 0, 0, name
