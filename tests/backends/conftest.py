"""Kernels of the GPU are interpreted in this process: Triton asks once, when it is imported.

That is slow, so `thorough` tests of them are left out unless LLAMINA_THOROUGH is set; the others have every operation
and every format.
"""

import os

import pytest

os.environ["TRITON_INTERPRET"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thorough: left out unless LLAMINA_THOROUGH is set")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("LLAMINA_THOROUGH"):
        return
    left = [item for item in items if item.get_closest_marker("thorough")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
