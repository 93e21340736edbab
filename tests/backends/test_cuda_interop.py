"""Arrays of the GPU for other libraries; here the memory is the host's."""

import ctypes

import numpy as np
import numpy.typing as npt
import pytest
from plans import whole
from test_cpu_ops import PLANS

from llamina.backends.cuda import CudaBackend
from llamina.backends.cuda.interop import DeviceArray
from llamina.errors import RequestError
from skips import import_peer

import_peer("triton")
from cuda_runs import compiled  # noqa: E402 (Triton's kernels)


def seen(array: DeviceArray) -> npt.NDArray[np.generic]:
    """What another library would see."""
    facts = array.__cuda_array_interface__
    assert facts["version"] == 3 and facts["stream"] is None
    dtype, (address, read_only) = np.dtype(facts["typestr"]), facts["data"]
    assert not read_only
    nbytes = int(np.prod(facts["shape"])) * dtype.itemsize
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype).reshape(facts["shape"])


@pytest.mark.parametrize(("kv_type", "row"), [("f16", (2, 16, 12)), ("bf16", (2, 16, 12)), ("q8_0", (2, 544))])
def test_what_is_on_the_device_is_seen(kv_type: str, row: tuple[int, ...]) -> None:
    """Logits, keys and values, without a copy."""
    program, batch = compiled(PLANS["attention"], kv_type)  # type: ignore[arg-type]
    found = program.launch(batch.fill([whole([3, 1, 4], first_page=7)])).result().copy()
    assert np.array_equal(seen(program.outputs(3)), found)
    (state, keys), (other, values) = program.states.arrays("page")
    assert state is other and keys.shape == (64, *row) and seen(keys)[7].any()
    both = [seen(array)[7].reshape(-1).view(np.uint8) for array in (keys, values)]
    assert np.array_equal(np.concatenate(both), program.states.read("page", [7])[0])
    program.close()


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_a_stream_that_was_not_made(stream: int) -> None:
    """The default streams, which cannot be recorded into graphs."""
    with pytest.raises(RequestError, match=f"stream is {stream}: it must be one that was made"):
        CudaBackend(stream=stream)
