"""Engines of several threads on one GPU, with a driver that only writes down what it is asked for."""

import ctypes
import threading
from itertools import count
from typing import Any

import numpy as np
import pytest

from llamina.backends.cuda import gpu as module
from llamina.backends.cuda.device import Kernel, Launch
from llamina.backends.cuda.gpu import Gpu


class Driver:
    """Handles are numbers; pinned memory is the host's."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int | None]] = []  # functions, and the stream that they name
        self.during: Any = None  # called while a capture is under way
        self._handles, self._held = count(1), list[Any]()

    def call(self, name: str, *arguments: Any) -> None:
        position = {"cuStreamBeginCapture_v2": 0, "cuEventRecord": 1, "cuMemcpyHtoDAsync_v2": 3, "cuGraphLaunch": 1}
        self.log.append((name, arguments[position[name]].value if name in position else None))
        if name == "cuStreamBeginCapture_v2" and self.during is not None:
            self.during()

    def make(self, name: str, *arguments: Any) -> int:
        if name == "cuMemHostAlloc":
            self._held.append(ctypes.create_string_buffer(arguments[0].value))
            return ctypes.addressof(self._held[-1])
        return next(self._handles)

    def make_second(self, name: str, first: Any) -> int:
        self.log.append((name, first.value))
        return next(self._handles)

    def number(self, name: str, *arguments: Any) -> int:
        return 9

    def device_count(self) -> int:
        return 1

    def device_name(self, device: int) -> str:
        return "a GPU"

    def streams(self, name: str) -> set[int | None]:
        return {stream for function, stream in self.log if function == name}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(module, "open_driver", lambda: driver)
    monkeypatch.setattr(module, "STAGING", 64)
    return driver


def test_work_goes_on_while_another_thread_records(driver: Driver) -> None:
    """What a thread does on the stream of a GPU must not become part of a graph that another thread is recording."""
    gpu = Gpu()

    def work() -> None:
        gpu.mark()

    def beside() -> None:
        other = threading.Thread(target=work)
        other.start()
        other.join(10)
        assert not other.is_alive()

    driver.during = beside
    graph = gpu.record([])
    graph.replay()
    (recorded,) = driver.streams("cuStreamBeginCapture_v2")
    assert driver.streams("cuStreamEndCapture") == {recorded}
    assert driver.streams("cuEventRecord") == driver.streams("cuGraphLaunch") == {gpu.stream} != {recorded}


def test_a_capture_is_ended_whatever_happens(driver: Driver) -> None:
    """Otherwise nothing could be recorded any more."""
    gpu = Gpu()
    unknown = Launch(Kernel("file.kernel", (), ()), (1, 1, 1), {}, 0)
    with pytest.raises(KeyError):
        gpu.record([unknown])
    assert [name for name, _ in driver.log][-2:] == ["cuStreamBeginCapture_v2", "cuStreamEndCapture"]
    gpu.record([]).replay()


def test_a_callers_stream_does_the_work(driver: Driver) -> None:
    gpu = Gpu(stream=1234)
    gpu.record([]).replay()
    gpu.write(0, np.zeros(100, np.uint8))
    assert driver.streams("cuGraphLaunch") == driver.streams("cuMemcpyHtoDAsync_v2") == {1234}
    assert 1234 not in driver.streams("cuStreamBeginCapture_v2")
