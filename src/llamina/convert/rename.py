"""A folder's tensors under GGUF's names: edited, split and stacked. Every tensor must have a name in GGUF."""

from collections.abc import Iterator, Mapping

from llamina.convert.families import Family
from llamina.convert.lazy import Lazy, floats, stack
from llamina.convert.names import MULTIMODAL, UNUSED, WRAPPERS
from llamina.convert.rope import Rope
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError, UnsupportedModel

_SUFFIXES = (".weight", ".bias")


def renamed(family: Family, settings: Settings, stored: Mapping[str, Lazy], notes: list[str]) -> dict[str, Lazy]:
    """Return the tensors of the GGUF file by name. What is left out goes to `notes`.

    Raises UnsupportedModel for a tensor without a name in GGUF, ModelFileError if one is missing.
    """
    tensors: dict[str, Lazy] = {}
    stacks: dict[str, dict[int, Lazy]] = {}
    for theirs, tensor in _wanted(family, settings, stored, notes).items():
        for name, slot, edited in targets(family, settings, theirs, tensor):
            if slot is not None:
                stacks.setdefault(name, {})[slot] = edited
            elif name in tensors:
                raise ModelFileError(f"two tensors of the folder would both become {name}: one is {theirs}")
            else:
                tensors[name] = edited
    tensors |= {name: _stacked(name, parts, settings) for name, parts in stacks.items()}
    if family.rope:
        tensors |= {name: Lazy.here(values) for name, values in Rope.read(settings).factors().items()}
    _check(tensors, settings)
    return dict(sorted(tensors.items(), key=lambda item: _order(item[0])))


def _wanted(family: Family, settings: Settings, stored: Mapping[str, Lazy], notes: list[str]) -> dict[str, Lazy]:
    """Return the tensors of the text model, under names without the prefix of a wrapper."""
    wanted: dict[str, Lazy] = {}
    left: dict[str, int] = {}
    for theirs, tensor in stored.items():
        short = WRAPPERS.sub("", theirs)
        layer = next((int(part) for part in short.split(".") if part.isdigit()), 0)
        if MULTIMODAL.match(theirs):
            left["of vision or audio"] = left.get("of vision or audio", 0) + 1
        elif layer >= settings.layers:
            left["after the last layer"] = left.get("after the last layer", 0) + 1
        elif not _is_unused(family, theirs, short):
            if short in wanted:
                raise ModelFileError(f"two tensors of the folder are {short}: one is {theirs}")
            wanted[short] = tensor
    if settings.get("tie_word_embeddings", False):
        wanted.pop("lm_head.weight", None)
    notes += [f"{count} tensors {what} are left out: GGUF keeps the text model" for what, count in left.items()]
    return wanted


def _is_unused(family: Family, theirs: str, short: str) -> bool:
    pattern = ".".join("*" if part.isdigit() else part for part in short.split("."))
    ignored = family.ignored is not None and family.ignored.match(short) is not None
    return ignored or pattern in family.learned or UNUSED.search(theirs) is not None


def learned(family: Family, settings: Settings, stored: Mapping[str, Lazy]) -> dict[str, list[float]]:
    """Return metadata that the folder has as tensors, a number for each layer. Raises ModelFileError if one lacks."""
    tensors = {WRAPPERS.sub("", name): tensor for name, tensor in stored.items()} if family.learned else {}
    keys: dict[str, list[float]] = {}
    for pattern, key in family.learned.items():
        for name in (pattern.replace("*", str(layer)) for layer in range(settings.layers)):
            if name not in tensors or tensors[name].size != 1:
                raise ModelFileError(f"the folder has no {name} with one number: fetch the rest of its weights")
            keys.setdefault(key, []).append(float(floats(tensors[name].load(), tensors[name].dtype).reshape(-1)[0]))
    return keys


def targets(family: Family, settings: Settings, theirs: str, tensor: Lazy) -> Iterator[tuple[str, int | None, Lazy]]:
    """Yield each name in GGUF of a tensor, its index in a stack (None: not stacked), and its edited part.

    Raises UnsupportedModel for a tensor that the architecture does not have.
    """
    numbers = [part for part in theirs.split(".") if part.isdigit()]
    pattern = ".".join("*" if part.isdigit() else part for part in theirs.split("."))
    suffix = "" if pattern in family.names else next((s for s in _SUFFIXES if pattern.endswith(s)), "")
    names = family.names.get(pattern.removesuffix(suffix) if suffix else pattern)
    if names is None:
        raise UnsupportedModel(
            f"{theirs} has no name in {family.architecture}: the folder is a variant that llamina does not know"
        )
    several = " " in names
    for target in names.split():
        whole = target.removeprefix("blk.*.") + suffix
        known = family.parts if several else family.edits
        edit = known.get(whole) or known.get(whole.removesuffix(".weight").removesuffix(".bias"))
        name = (target.replace("*", numbers[0]) if numbers else target) + suffix
        stacked = pattern.count("*") > target.count("*")
        yield name, int(numbers[-1]) if stacked else None, tensor if edit is None else edit(tensor, settings)


def _stacked(name: str, parts: Mapping[int, Lazy], settings: Settings) -> Lazy:
    """Return the parts as one tensor. Raises ModelFileError unless there is one for each expert."""
    expected = settings.count("num_local_experts num_experts n_routed_experts") if "_exps" in name else len(parts)
    if len(parts) != expected or parts.keys() != set(range(len(parts))):
        raise ModelFileError(f"{name} is made of {len(parts)} tensors, where {expected} are expected: fetch the rest")
    return stack([parts[slot] for slot in range(len(parts))], name)


def _check(tensors: Mapping[str, Lazy], settings: Settings) -> None:
    """Raise ModelFileError if embeddings or a layer is missing."""
    if "token_embd.weight" not in tensors or len(tensors["token_embd.weight"].shape) != 2:
        raise ModelFileError("the folder has no token embeddings: fetch the rest of its weights")
    layers = {int(name.split(".")[1]) for name in tensors if name.startswith("blk.")}
    missing = next((layer for layer in range(settings.layers) if layer not in layers), None)
    if missing is not None:
        raise ModelFileError(f"the folder has no tensors of layer {missing}: fetch the rest of its weights")


def _order(name: str) -> tuple[int, int, str]:
    """Sort key: embeddings, then the layers, then the output."""
    if name.startswith("blk."):
        return 1, int(name.split(".")[1]), name
    return 2 if name.startswith("output") else 0, 0, name
