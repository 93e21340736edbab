"""The batch as a GPU gets it: written to one of two blocks of the host's memory, fetched by a kernel."""

import numpy as np
import pytest

from llamina.ops.batch import Batch, Span
from skips import import_peer

import_peer("triton")
from llamina.backends.cuda.device import launch_of  # noqa: E402 (Triton's kernels)
from llamina.backends.cuda.inputs import Inputs  # noqa: E402
from llamina.backends.cuda.interpreter import Interpreter  # noqa: E402
from llamina.backends.cuda.memory import Buffer, Ref  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn
MANY = [Span([-1 - i], 7, [i], i, [0]) for i in range(8)]
FEW = [Span([-1 - i], 8, [0], i, [0]) for i in range(5)]
TEXT = [Span([3, 1, 4], 0, [2], 0, [2])]


class Host:
    """A batch and what a device makes of it."""

    def __init__(self) -> None:
        self.device, self.batch = Interpreter(), Batch(8, 8, 8, 4)
        self.inputs = Inputs(self.device, self.batch, adapters=False, windows=False)
        self._ids = Ref(Buffer(32, self.device.allocate(32)), 0, "i32")
        self.device.write(self._ids.address, np.arange(70, 78, dtype=np.int32))

    def stage(self, spans: list[Span]) -> None:
        self.inputs.stage(self.batch.fill(spans))

    def fetch(self) -> list[int]:
        """The tokens of the step that comes next."""
        grid, args = self.inputs.fetching(8)
        constants = {name: int(args.pop(name)) for name in ("HEADER", "BLOCK")}  # type: ignore[arg-type]
        given = {**args, "ids": self._ids}
        launch = launch_of("inputs.fetch", grid, 4, 3, given, constants | {"EARLY": 0})
        self.device.prepare({launch.kernel})
        self.device.run([launch])
        return self.device.read(self.inputs.refs["tokens"].address, 32).view(np.int32).tolist()


def test_what_a_step_does_not_have_is_a_token() -> None:
    """Kernels read as many tokens as the bucket has; references to sampled ids of an earlier step are none."""
    host = Host()
    for spans in (MANY, MANY, FEW, FEW, TEXT):  # there are two blocks
        host.stage(spans)
        host.inputs.submitted()
        tokens = [3, 1, 4] if spans is TEXT else list(range(70, 70 + len(spans)))
        assert host.fetch() == tokens + [0] * (8 - len(tokens))


def test_the_host_is_a_step_ahead() -> None:
    """Each step gets its own block, also if the next one is there before it begins; numbers may overflow."""
    host = Host()
    host.inputs.number = 2**31 - 3
    host.device.write(host.inputs._state, np.array([2**31 - 3, 0], np.int32))
    host.stage(TEXT)
    host.inputs.submitted()
    for spans in (MANY, TEXT, MANY, TEXT):
        host.stage(spans)
        host.inputs.submitted()
        assert (host.fetch()[:3] == [3, 1, 4]) == (spans is MANY)


def test_a_step_that_was_not_asked_for() -> None:
    """The next one takes its place."""
    host = Host()
    host.stage(MANY)
    host.stage(TEXT)
    host.inputs.submitted()
    assert host.fetch()[:3] == [3, 1, 4]
