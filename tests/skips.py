"""A pytest plugin: which skips are allowed, and the list of them at the end of a run.

A test may skip for hardware that this machine lacks, or for a peer that is not installed or reachable. It says so with
`skip`, `needs` or `import_peer`. With CI=true any other skip is a failure.

With LLAMINA_BACKEND=cuda, models are computed on a GPU where a test does not say on what, with `exact` bits; tests that
are marked `cpu_only` are left out then.
"""

import importlib
import os
from collections import Counter
from collections.abc import Generator
from typing import Any, Literal, NoReturn

import pytest

Lack = Literal["hardware", "peer"]
ALLOWED = ("hardware: ", "peer: ")
CPU_ONLY = "it is about the CPU backend"


def skip(lack: Lack, why: str) -> NoReturn:
    """Skip the running test for want of hardware or a peer."""
    pytest.skip(f"{lack}: {why}", allow_module_level=True)


def needs(lack: Lack, there: bool, why: str) -> pytest.MarkDecorator:
    """A mark that skips a test unless what it needs is there."""
    return pytest.mark.skipif(not there, reason=f"{lack}: {why}")


def import_peer(name: str) -> Any:
    """An imported package that stands beside us; the test skips if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        skip("peer", f"{name} is not installed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"cpu_only: skipped where LLAMINA_BACKEND is a GPU: {CPU_ONLY}")
    if on_a_gpu():
        from llamina.engine.runner import devices

        devices.make_backend = _exact


def on_a_gpu() -> bool:
    return os.environ.get("LLAMINA_BACKEND") in ("cuda", "interpreter")


def _exact(name: str, **options: Any) -> Any:
    """The backend that is asked for; tests compare bits in other batches, which a GPU keeps equal only then."""
    from llamina.backends import backend

    return backend(name, **options | {"exact": True})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items if on_a_gpu() else ():
        if item.get_closest_marker("cpu_only"):
            item.add_marker(pytest.mark.skip(reason=f"hardware: {CPU_ONLY}"))


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test or a module was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _judge(report: Any) -> None:
    """In CI, make a failure of a skip that is not allowed."""
    if report.skipped and not hasattr(report, "wasxfail") and not reason(report).startswith(ALLOWED):
        report.outcome, report.longrepr = "failed", f"skipped in CI, for neither hardware nor a peer: {reason(report)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") == "true":
        _judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Modules skip as a whole while they are collected."""
    report = yield
    if os.environ.get("CI") == "true":
        _judge(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The skips by reason."""
    skipped = Counter(map(reason, terminalreporter.stats.get("skipped", ())))
    if skipped:
        terminalreporter.section("skipped", "-")
    for why, count in sorted(skipped.items()):
        terminalreporter.write_line(f"{count:4}  {why}")
