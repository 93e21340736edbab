"""The type of each tensor: what the file types are made of, as llama.cpp mixes them (`llama_tensor_get_type`)."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llamina.backends.encode import ENCODED
from llamina.errors import ModelFileError, RequestError, UnsupportedModel
from llamina.gguf import TensorType, tensor_type
from llamina.quantization.tensors import is_quantized, layer_of, order_of, role_of

FILE_TYPES: dict[str, tuple[int, str]] = {
    **{"F32": (0, "F32"), "F16": (1, "F16"), "BF16": (32, "BF16")},
    **{"Q4_0": (2, "Q4_0"), "Q4_1": (3, "Q4_1"), "Q5_0": (8, "Q5_0"), "Q5_1": (9, "Q5_1"), "Q8_0": (7, "Q8_0")},
    **{"Q2_K": (10, "Q2_K"), "Q2_K_S": (21, "Q2_K"), "Q3_K_S": (11, "Q3_K"), "Q3_K_M": (12, "Q3_K")},
    **{"Q3_K_L": (13, "Q3_K"), "Q4_K_S": (14, "Q4_K"), "Q4_K_M": (15, "Q4_K"), "Q5_K_S": (16, "Q5_K")},
    **{"Q5_K_M": (17, "Q5_K"), "Q6_K": (18, "Q6_K"), "IQ1_S": (24, "IQ1_S"), "IQ1_M": (31, "IQ1_M")},
    **{"IQ2_XXS": (19, "IQ2_XXS"), "IQ2_XS": (20, "IQ2_XS"), "IQ2_S": (28, "IQ2_XS"), "IQ2_M": (29, "IQ2_S")},
    **{"IQ3_XXS": (23, "IQ3_XXS"), "IQ3_XS": (22, "IQ3_S"), "IQ3_S": (26, "IQ3_S"), "IQ3_M": (27, "IQ3_S")},
    **{"IQ4_NL": (25, "IQ4_NL"), "IQ4_XS": (30, "IQ4_XS"), "TQ1_0": (36, "TQ1_0"), "TQ2_0": (37, "TQ2_0")},
    **{"MXFP4_MOE": (38, "MXFP4"), "NVFP4": (39, "NVFP4"), "Q1_0": (40, "Q1_0"), "Q2_0": (41, "Q2_0")},
}
"""Name → the number in `general.file_type`, and the type of most tensors."""
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "Q1_0_G128": "Q1_0"}

TWO_BITS = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"}
_SMALLER = {  # for rows that do not divide into blocks of 256
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_0", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    **{"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"},
}


def file_type(name: str) -> str:
    """A file type by its name in any case. Raises RequestError if there is none."""
    known = ALIASES.get(name.upper(), name.upper())
    if known not in FILE_TYPES:
        raise RequestError(f"type is {name!r}: must be one of {', '.join(FILE_TYPES)}", "type")
    return known


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller wants other than the mix: types of some tensors, all of one type, the output as it is.

    `overrides` are (regular expression, type), of which the first that is found in a tensor's name counts.
    """

    overrides: Sequence[tuple[str, str]] = ()
    output_type: str | None = None
    embedding_type: str | None = None
    pure: bool = False
    keep_output: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What a mix depends on besides names: numbers of the model, and whether there are importances."""

    architecture: str
    layers: int
    heads: int
    kv_heads: int
    experts: int
    importances: bool = False

    @classmethod
    def of(cls, metadata: Mapping[str, Any], importances: bool) -> "Facts":
        """Read a file's metadata. Raises ModelFileError if it names no architecture."""
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise ModelFileError("general.architecture is missing: give the GGUF file of a model")

        def number(key: str, otherwise: int) -> int:
            value = metadata.get(f"{architecture}.{key}", otherwise)
            first = value if isinstance(value, int) else value[0] if len(value) else otherwise
            return int(first)

        heads = number("attention.head_count", 0)
        kv_heads = number("attention.head_count_kv", heads)
        layers, experts = number("block_count", 0), number("expert_count", 0)
        return cls(architecture, layers, heads, kv_heads, experts, importances)

    @property
    def sharing(self) -> int:
        """Heads to a KV head."""
        return self.heads // self.kv_heads if self.kv_heads else 0

    @property
    def is_70b(self) -> bool:
        if self.architecture == "llama":
            return self.layers == 80 and self.heads != self.kv_heads
        return (self.architecture, self.layers) in {("qwen2", 80), ("deci", 80), ("olmo", 80), ("jais2", 68)}


def tensor_types(
    shapes: Mapping[str, tuple[int, ...]], mix: str, facts: Facts, options: Options | None = None
) -> dict[str, TensorType | None]:
    """The type of each tensor in a file of type `mix`, in the order of layers; None for those that are not quantized.

    Raises RequestError for an override that is no regular expression, UnsupportedModel for rows that no type fits.
    """
    wanted = wanted_types(shapes, mix, facts, options)
    return {name: None if kind is None else fitting(kind, name, shapes[name]) for name, kind in wanted.items()}


def wanted_types(
    shapes: Mapping[str, tuple[int, ...]], mix: str, facts: Facts, options: Options | None = None
) -> dict[str, TensorType | None]:
    """The same, whether or not rows divide into blocks of these types."""
    chosen = _Mix(mix, facts, options or Options(), tied="output.weight" not in shapes)
    names = sorted(shapes, key=order_of)
    chosen.values = sum(role_of(name) == "value" for name in names)
    return {name: chosen.wanted(name, shapes[name]) for name in names}


class _Mix:
    """Chooses types, one tensor after the other: some choices count the tensors before."""

    def __init__(self, mix: str, facts: Facts, options: Options, tied: bool) -> None:
        self.mix, self.facts, self.options, self.tied = mix, facts, options, tied
        self.default = FILE_TYPES[mix][1]
        self.values = 0
        self._seen: Counter[str] = Counter()
        self._output_type = writable(options.output_type, "output_type") if options.output_type else None
        self._embedding_type = writable(options.embedding_type, "embedding_type") if options.embedding_type else None
        try:
            self._overrides = [(re.compile(p), writable(kind, "overrides")) for p, kind in options.overrides]
        except re.error as error:
            raise RequestError(f"{error.pattern!r} is no regular expression: {error}", "overrides") from None

    def wanted(self, name: str, shape: tuple[int, ...]) -> TensorType | None:
        role, options = role_of(name), self.options
        if not is_quantized(name, shape, self.facts.architecture) or (options.keep_output and role == "output"):
            return None
        named = next((kind for pattern, kind in self._overrides if pattern.search(name)), None)
        by_pattern = named is not None and name == "per_layer_token_embd.weight"
        if self._embedding_type and role == "embedding" and not by_pattern:
            return self._embedding_type
        if self._output_type and role == "output":
            return self._output_type
        default = tensor_type(self.default)
        if default.block == 1:
            return default
        if named is None:
            named = default if options.pure else tensor_type(self._mixed(name, shape, role))
        return named

    def _mixed(self, name: str, shape: tuple[int, ...], role: str) -> str:
        mix, facts = self.mix, self.facts
        if facts.architecture == "glm5-next" and re.search(r"attn_q_[ab]|nextn\.eh_proj", name):
            return "Q8_0"
        if role == "output" or (self.tied and role == "embedding"):
            return self._output(shape)
        if mix == "MXFP4_MOE":
            experts = len(shape) > 2 and shape[0] > 1
            if facts.architecture == "bailingmoe3":
                experts = experts and role in ("up", "gate", "down")
            return "MXFP4" if experts else "Q8_0"
        if role == "embedding":
            return self._embedding()
        count = self._seen[role]
        self._seen[role] += 1
        if mix in TWO_BITS:
            return self._two_bits(role, count)
        layer = count
        if role in ("down", "gate", "up") and facts.experts > 1:
            layer = self._layer(name)
        match role:
            case "value":
                return self._value(count)
            case "key" | "query":
                return self._key_or_query(role)
            case "down":
                return self._down(layer)
            case "attention output":
                return self._attention_output()
            case "gate" | "up" if mix == "IQ3_XS" and facts.layers // 8 <= layer < 7 * facts.layers // 8:
                return "IQ3_XXS"
        return self.default

    def _layer(self, name: str) -> int:
        layer = layer_of(name)
        if layer is None or layer >= self.facts.layers:
            raise ModelFileError(f"{name} is in none of the {self.facts.layers} layers that block_count tells of")
        return layer

    def _output(self, shape: tuple[int, ...]) -> str:
        if self._output_type:
            return self._output_type.name
        misfit = shape[-1] % tensor_type(self.default).block
        if self.mix == "MXFP4_MOE" or self.facts.architecture == "falcon" or misfit or self.default == "Q8_0":
            return "Q8_0"
        return "Q5_K" if self.mix in TWO_BITS or self.mix == "IQ3_XXS" else "Q6_K"

    def _embedding(self) -> str:
        match self.mix:
            case "IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M":
                return "Q2_K"
            case "IQ2_S" | "IQ2_M" | "IQ3_XXS":
                return "IQ3_S"
            case "TQ1_0" | "TQ2_0" | "Q2_0":
                return "Q4_K"
        return self.default

    def _two_bits(self, role: str, count: int) -> str:
        """Types of about two bits: what matters most gets more."""
        facts = self.facts
        more = "IQ3_S" if self.mix in ("IQ2_S", "IQ2_M") else "Q2_K"
        match role:
            case "value":
                return "Q4_K" if facts.sharing >= 4 or facts.experts >= 4 else more
            case "key" if facts.experts == 8:
                return "Q4_K"
            case "down" if count < facts.layers // 8:
                return more
            case "attention output" if facts.experts == 8:
                return "Q5_K"
            case "attention output" if self.mix in ("IQ1_S", "IQ1_M"):
                return "IQ2_XXS"
            case "attention output" if more == "IQ3_S":
                return more
        return self.default

    def _value(self, count: int) -> str:
        if self.facts.experts == 8:
            return "Q8_0"
        chosen = self._plain_value(count)
        return "Q5_K" if self.facts.is_70b and chosen in ("Q3_K", "Q4_K") else chosen

    def _plain_value(self, count: int) -> str:
        shared = self.facts.sharing >= 4
        match self.mix:
            case "Q2_K":
                return "Q4_K" if shared else "Q3_K"
            case "Q2_K_S" | "IQ3_XS" | "IQ3_S" if shared:
                return "Q4_K"
            case "IQ3_XXS":
                return "Q4_K" if shared else "IQ3_XXS" if self.facts.importances else "IQ3_S"
            case "IQ3_M":
                return "Q4_K"
            case "Q3_K_M":
                return "Q5_K" if count < 2 else "Q4_K"
            case "Q3_K_L":
                return "Q5_K"
            case "IQ4_NL" | "IQ4_XS" if shared:
                return "Q5_K"
            case "Q4_K_M" | "Q5_K_M" if _more_bits(count, self.values):
                return "Q6_K"
            case "Q4_K_S" if count < 4:
                return "Q5_K"
        return self.default

    def _key_or_query(self, role: str) -> str:
        if role == "key" and self.facts.experts == 8:
            return "Q8_0"
        return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(self.mix, self.default)

    def _down(self, layer: int) -> str:
        facts, layers = self.facts, self.facts.layers
        falcon, early, more = facts.architecture == "falcon", layer < layers // 8, _more_bits(layer, layers)
        match self.mix:
            case "Q2_K":
                return "Q3_K"
            case "Q2_K_S" if early:
                return "Q4_K"
            case "IQ3_XXS" if not facts.importances:
                return "Q4_K" if early else "Q3_K"
            case "Q3_K_M":
                return "Q5_K" if layer < layers // 16 else "Q4_K" if more or not falcon else "Q3_K"
            case "IQ3_M" if early or (facts.experts == 8 and more):
                return "Q4_K"
            case "Q3_K_L":
                return "Q4_K" if falcon else "Q5_K"
            case "Q4_K_M" if falcon:
                return "Q6_K" if layer < layers // 16 else "Q5_K" if more else "Q4_K"
            case "Q4_K_M" | "Q5_K_M" if more:
                return "Q6_K"
            case "IQ4_NL" | "IQ4_XS" if early and not facts.importances:
                return "Q5_K"
            case "Q4_K_S" if early and not falcon:
                return "Q5_K"
            case "Q4_0" | "Q5_0" if early and facts.importances:
                return "Q4_1" if self.mix == "Q4_0" else "Q5_1"
        return self.default

    def _attention_output(self) -> str:
        if self.facts.architecture == "falcon":
            return "Q4_K" if self.mix == "Q3_K_L" else self.default
        if self.facts.experts == 8:
            lower = {"Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS"}
            return "Q5_K" if self.mix in lower or self.mix.startswith("IQ3") else self.default
        chosen = {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"}
        return chosen.get(self.mix, self.default)


def fitting(kind: TensorType, name: str, shape: tuple[int, ...]) -> TensorType:
    """The type, or another for rows that do not divide into its blocks. Raises UnsupportedModel if there is none."""
    if shape[-1] % kind.block == 0:
        return kind
    if kind.block > 32 and kind.name not in _SMALLER:
        raise UnsupportedModel(
            f"{name} has rows of {shape[-1]}, which {kind.name} cannot hold: choose another type for it"
        )
    smaller = tensor_type(_SMALLER.get(kind.name, kind.name))
    return smaller if shape[-1] % smaller.block == 0 else tensor_type("F16")


def writable(name: str, param: str) -> TensorType:
    """The type of tensors that a caller asks for. Raises RequestError if there is none that can be written."""
    able = ("F32", "F16", "BF16", *ENCODED)
    if name.upper() not in able:
        raise RequestError(f"{name!r} is no type to quantize to: must be one of {', '.join(able)}", param)
    return tensor_type(name)


def _more_bits(index: int, count: int) -> bool:
    """The first and last eighth of the layers, and every third in between."""
    return index < count // 8 or index >= 7 * count // 8 or (index - count // 8) % 3 == 2


def needs_importances(name: str, kind: TensorType, mix: str) -> bool:
    """Whether a tensor of so few bits would be useless without importances."""
    if role_of(name) in ("output", "embedding"):
        return False
    few = kind.name in ("IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_M", "IQ1_S")
    return few or (kind.name == "Q2_K" and mix == "Q2_K_S")
