"""Which skips are allowed in CI, and the list of them at the end of a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = {
    "test_allowed.py": """
        from skips import import_peer, needs, skip
        def test_hardware(): skip("hardware", "no AMX")
        def test_package(): import_peer("no_such_package")
        @needs("hardware", False, "no GPU")
        def test_mark_a(): pass
        @needs("hardware", False, "no GPU")
        def test_mark_b(): pass
        @needs("hardware", True, "a CPU")
        def test_passes(): pass
    """,
    "test_call.py": """
        import pytest
        def test_call(): pytest.skip("by call")
    """,
    "test_mark.py": """
        import pytest
        @pytest.mark.skipif(True, reason="by mark")
        def test_mark(): pass
    """,
    "test_import.py": """
        import pytest
        def test_import(): pytest.importorskip("no_such_package")
    """,
    "test_fixture.py": """
        import pytest
        @pytest.fixture
        def found(): pytest.skip("by fixture")
        def test_fixture(found): pass
    """,
    "test_module.py": """
        import pytest
        pytest.skip("by module", allow_module_level=True)
    """,
}


def run(folder: Path, names: list[str], *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """pytest with the plugin on some of the modules above."""
    for name in names:
        (folder / name).write_text("\n".join(line[8:] for line in MODULES[name].splitlines()))
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # what is installed beside pytest takes seconds to import
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "skips", "-p", "no:cacheprovider", *options, *names],
        cwd=folder,
        env=os.environ | alone | {"PYTHONPATH": paths, "CI": "", "LLAMINA_BACKEND": "cpu"} | variables,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "xdist"])
def test_skips_are_listed_by_reason(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, list(MODULES), *options)
    assert done.returncode == 0, done.stdout
    assert [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("   ")] == [
        ["1", "by call"],
        ["1", "by fixture"],
        ["1", "by mark"],
        ["1", "by module"],
        ["1", "could not import 'no_such_package': No module named 'no_such_package'"],
        ["1", "hardware: no AMX"],
        ["2", "hardware: no GPU"],
        ["1", "peer: no_such_package is not installed"],
    ]


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "xdist"])
def test_in_ci_other_skips_fail(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, list(MODULES)[:-1], *options, CI="true")
    assert done.returncode == 1 and "2 failed, 1 passed, 4 skipped, 2 errors" in done.stdout, done.stdout
    for way in ("call", "mark", "fixture"):
        assert f"skipped in CI, for neither hardware nor a peer: by {way}" in done.stdout
    done = run(tmp_path, ["test_module.py"], *options, CI="true")
    assert done.returncode != 0 and "skipped in CI, for neither hardware nor a peer: by module" in done.stdout


@pytest.mark.parametrize(("device", "found"), [("cpu", "2 passed"), ("cuda", "1 passed, 1 skipped")])
def test_what_is_left_out_on_a_gpu(tmp_path: Path, device: str, found: str) -> None:
    marks = "@pytest.mark.cpu_only\ndef test_cpu(): pass"
    (tmp_path / "test_gpu.py").write_text(f"import pytest\n{marks}\ndef test_any(): pass\n")
    done = run(tmp_path, [], "--strict-markers", "-v", "test_gpu.py", CI="true", LLAMINA_BACKEND=device)
    assert done.returncode == 0 and found in done.stdout, done.stdout
