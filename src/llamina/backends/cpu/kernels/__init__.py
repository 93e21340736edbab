"""The kernels' Python source. Importing its modules imports numba; a warm start never does."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from llamina.errors import KernelError

MODULES = {
    "walk": ("walk", "post", "serve"),
    "pointwise.elementwise": (
        *("add", "mul", "div", "scale", "softcap", "at_most", "at_least", "temper", "copy", "fill", "given", "pick"),
        *("activate", "gated"),
    ),
    "pointwise.norm": ("rms_norm", "layer_norm", "softmax"),
    "pointwise.rope": ("rope_table", "rotary_table", "rope"),
    "pointwise.embed": ("embed",),
    "pointwise.experts": ("route", "mix", "sinkhorn", "expert_bias"),
    "pointwise.adapt": ("adapt", "adapt_embed"),
    "attention.kv_cache": ("write_keys", "write_values", "hadamard"),
    "attention.attend": ("attend", "attend_latent"),
    "attention.select": ("select",),
    "recurrent": ("convolve", "pool", "ngrams", "scan", "linear_attend"),
    "formats.quantize": ("quantize",),
    "gemv.words": ("exponents",),
    "encode.k_ranged": ("encode_q2_k", "encode_q4_k", "encode_q5_k"),
    "encode.k_centred": ("encode_q3_k", "encode_q6_k"),
    "encode.nonlinear": ("encode_iq4_nl", "encode_iq4_xs"),
    "encode.microscale": ("encode_mxfp4", "encode_nvfp4"),
    "encode.few_bits": ("encode_tq1_0", "encode_tq2_0", "encode_q1_0", "encode_q2_0"),
    "encode.lattice": ("encode_iq3_xxs", "encode_iq3_s", "encode_iq2_xxs", "encode_iq2_xs", "encode_iq2_s"),
    "encode.shifted": ("encode_iq1_s", "encode_iq1_m"),
    "encode.legacy": ("encode_q4_0", "encode_q4_1", "encode_q5_0", "encode_q5_1", "encode_q8_0"),
    "matmul": ("linear", "experts"),
}
"""Where kernels are, by their names without the format."""


def module_of(name: str) -> str:
    """The module of a kernel: `rms_norm`, or `linear.Q4_K` where there is one for each format.

    Raises KernelError if there is none.
    """
    for module, names in MODULES.items():
        if name.partition(".")[0] in names:
            return f"{__name__}.{module}"
    raise KernelError(f"no CPU kernel is called {name!r}")


def find(name: str) -> Callable[..., Any]:
    """The function behind a kernel's name. Raises KernelError if there is none."""
    table: dict[str, Callable[..., Any]] = import_module(module_of(name)).KERNELS
    if name not in table:
        raise KernelError(f"no CPU kernel is called {name!r}")
    return table[name]
