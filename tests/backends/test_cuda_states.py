"""States on the GPU, by Triton's interpreter: kept as the reference keeps them, and moved between the two."""

import numpy as np
import pytest
from test_states import TOKENS, Memory, check_layout, moved

from llamina.backends import KV_TYPES, KvType
from skips import import_peer

import_peer("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_pages_are_the_references(kv_type: KvType) -> None:
    """The same numbers in the canonical layout, from where either goes on as the other does."""
    device, reference = (Memory(name, "attend", kv_type) for name in ("interpreter", "reference"))
    device.step(TOKENS[:17], 0)
    reference.step(TOKENS[:17], 0)
    check_layout(device, kv_type)
    moved(device, reference, exact=False)  # there may be two scales for the same numbers
    ours, theirs = reference.program.states.read("page", [9, 4])
    assert np.array_equal(ours, theirs)
    moved(reference, device)
    near, want = (memory.step(TOKENS[17:20], 17, 6, *pages) for memory, pages in
                  ((device, ([9, 7, 8], [0, 8, 4])), (reference, ([4, 5, 6], [3, 2, 1]))))  # fmt: skip
    assert np.allclose(near, want, rtol=1e-2, atol=1e-2 if kv_type == "bf16" else 2e-3)
