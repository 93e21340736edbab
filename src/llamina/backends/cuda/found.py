"""Whether a GPU can be used here, and what is missing if not. Loads neither Triton nor a kernel."""

from dataclasses import dataclass, field
from importlib.util import find_spec

from llamina.backends.cuda.driver import open_driver
from llamina.errors import LlaminaError

CUDA_EXTRA = "pip install 'llamina[cuda]'"


@dataclass(frozen=True, slots=True)
class Found:
    """The GPUs of this machine by name, and what keeps them from being used; "" if nothing does."""

    names: list[str] = field(default_factory=list)
    missing: str = ""

    @property
    def usable(self) -> bool:
        return bool(self.names) and not self.missing


def find_gpus() -> Found:
    """What the driver shows; never raises."""
    try:
        driver = open_driver()
        count = driver.device_count()
        names = [driver.device_name(driver.number("cuDeviceGet", index)) for index in range(count)]
    except LlaminaError:
        return Found(missing="no NVIDIA driver that works")
    if not names:
        return Found(missing="the driver shows no GPU")
    if find_spec("triton") is None:
        return Found(names, f"Triton is not installed: {CUDA_EXTRA}")
    return Found(names)
