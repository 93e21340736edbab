"""What the devices of this machine are, for people: instruction sets of the CPU, GPUs and what keeps them from use."""

from llamina.backends.cpu import features
from llamina.backends.cuda.found import Found, find_gpus

__all__ = ["ISAS", "Found", "find_gpus", "instruction_sets", "usable_isas"]
ISAS = features.LADDER
"""What LLAMINA_ISA can be."""


def usable_isas() -> list[str]:
    """Those of `ISAS` that this CPU has, whatever LLAMINA_ISA is."""
    return features.steps()


def instruction_sets() -> list[str]:
    """Those that kernels are compiled for; none means portable code."""
    sets = {"AVX2": features.HAS_AVX2, "AVX-512": features.HAS_AVX512, "VNNI": features.HAS_VNNI}
    sets |= {"VBMI": features.HAS_VBMI, "BF16": features.HAS_BF16, "AMX": features.HAS_AMX}
    sets |= {"NEON dot products": features.HAS_SDOT}
    return [name for name, there in sets.items() if there]
