"""The device that a program is compiled for."""

from functools import cache

from llamina.backends.cuda.device import Device


@cache
def open_device(name: str) -> Device:
    """The GPU, or without one Triton's interpreter; one of each serves all programs of the process."""
    if name == "interpreter":
        from llamina.backends.cuda.interpreter import Interpreter

        return Interpreter()
    from llamina.backends.cuda.gpu import Gpu

    return Gpu()
