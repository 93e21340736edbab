"""Where caches are, also for users without a home folder."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from llamina.errors import LlaminaError
from llamina.places import cache_dir

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="hardware: user ids and modes are those of POSIX")


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No HOME, and a user whom the user database does not know; the folder of temporary files."""
    import pwd

    def nobody(user: int) -> None:
        raise KeyError(user)

    for name in ("HOME", "XDG_CACHE_HOME", "LLAMINA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_settings_come_first(tmp_path: Path, homeless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    inside = Path("Library/Caches") if sys.platform == "darwin" else Path(".cache")
    assert cache_dir() == tmp_path / inside / "llamina"
    if sys.platform != "darwin":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_dir() == tmp_path / "xdg" / "llamina"
    monkeypatch.setenv("LLAMINA_CACHE", "~/own")
    assert cache_dir() == tmp_path / "own"


def test_without_a_home_folder_it_is_a_private_temporary_one(homeless: Path) -> None:
    folder = cache_dir()
    assert folder == homeless / f"llamina-{os.getuid()}" == cache_dir()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_to_is_refused(homeless: Path) -> None:
    folder = homeless / f"llamina-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(LlaminaError, match=r"llamina-\d+ is not a folder that this user alone .* LLAMINA_CACHE"):
        cache_dir()
    folder.rmdir()
    elsewhere = homeless / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(LlaminaError, match="LLAMINA_CACHE"):
        cache_dir()


def test_without_any_folder_the_error_says_so(homeless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(homeless / "missing"))
    with pytest.raises(LlaminaError, match="set LLAMINA_CACHE to a folder"):
        cache_dir()
    monkeypatch.setenv("LLAMINA_CACHE", "~/own")
    with pytest.raises(LlaminaError, match="LLAMINA_CACHE is '~/own'"):
        cache_dir()


HOMELESS = """
import os, pwd, sys

def nobody(user):
    raise KeyError(user)

pwd.getpwuid = nobody
import llamina.cli
sys.argv = ["llamina", "list"]
llamina.cli.main()
"""


def test_the_command_line_of_a_user_nobody_knows(tmp_path: Path) -> None:
    absent = ("HOME", "XDG_CACHE_HOME", "LLAMINA_CACHE", "HF_HOME", "HF_HUB_CACHE")
    settings = {name: value for name, value in os.environ.items() if name not in absent}
    command = [sys.executable, "-c", HOMELESS]
    done = subprocess.run(
        command, env=settings | {"TMPDIR": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "no model has been pulled yet" in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [f"llamina-{os.getuid()}"]
