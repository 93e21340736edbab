"""Repositories and addresses: which files come, how many requests that takes, who gets the token, working offline."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import llamina
from fake_hub import COMMIT, TOKEN, Asked, FakeHub
from llamina import hub
from llamina.cli import cli
from llamina.engine.runner.encoders import encoder_beside
from llamina.errors import DownloadError, ModelNotFound, RequestError
from llamina.gguf import write
from llamina.hub import huggingface
from llamina.hub.hf_cache import repo_folder
from llamina.hub.origin import Origin

Start = Callable[..., FakeHub]
MODEL, OTHER = os.urandom(100_000), os.urandom(100_000)
FILES = {"README.md": b"#", "m-Q4_K_M.gguf": MODEL, "m-Q8_0.gguf": OTHER}
SHARDS = {f"BF16/m-BF16-0000{n}-of-00003.gguf": os.urandom(50_000) for n in (1, 2, 3)}
DIGEST = hashlib.sha256(MODEL).hexdigest()


# ---- what comes --------------------------------------------------------------------------------------------


def test_a_second_pull_costs_one_request(fake: Start) -> None:
    server = fake(FILES)
    first = hub.pull("user/repo")
    assert first == repo_folder("user/repo") / "snapshots" / COMMIT / "m-Q4_K_M.gguf"
    assert (repo_folder("user/repo") / "refs" / "main").read_text() == COMMIT
    server.asked.clear()
    assert hub.pull("hf:user/repo:q4_k_m") == first and server.paths() == ["/api/models/user/repo/revision/main"]
    server.asked.clear()
    assert hub.obtain("hf:user/repo") == hub.find("user/repo") == hub.obtain("user/repo:Q4_K_M") == first
    assert server.paths() == []


def test_a_repository_that_went_on(fake: Start) -> None:
    """A new commit: what is the same in it is not fetched again."""
    server = fake(FILES)
    hub.pull("user/repo")
    hub.pull("user/repo:Q8_0")
    server.commit = "b" * 40
    server.repos["user/repo"]["m-Q8_0.gguf"] = newer = os.urandom(1000)
    server.sent = 0
    assert hub.pull("user/repo").parent.name == "b" * 40 and server.sent == 0
    assert hub.pull("user/repo:Q8_0").read_bytes() == newer and server.sent == 1001


def test_all_shards_come(fake: Start) -> None:
    fake(FILES | SHARDS)
    seen: list[tuple[str, int, int]] = []
    first = hub.pull("user/repo:bf16", lambda *step: seen.append(step))
    assert {path.name: path.read_bytes() for path in hub.Model("x", first).files} == {
        name.removeprefix("BF16/"): data for name, data in SHARDS.items()
    }
    assert {(what, total) for what, _, total in seen} == {("user/repo:BF16", 150_000)}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen), "progress of all as one"


def test_a_model_that_lacks_a_shard_is_none(fake: Start) -> None:
    server = fake(SHARDS)
    server.fault = lambda asked: 403 if "00002" in asked.path and asked.host == "cdn" else None
    with pytest.raises(DownloadError):
        hub.pull("user/repo:bf16")
    assert hub.names() == []
    with pytest.raises(ModelNotFound, match="has not been pulled"):
        hub.find("user/repo")
    server.fault, server.sent = None, 0
    hub.pull("user/repo:bf16")
    assert hub.names() == ["user/repo:BF16"] and server.sent == 2 * 50_001, "the first was here"
    del server.repos["user/repo"]["BF16/m-BF16-00003-of-00003.gguf"]
    with pytest.raises(ModelNotFound, match=r"user/repo lacks BF16/m-BF16-00003-of-00003.gguf"):
        hub.pull("user/repo:bf16")


def picture_encoder(path: Path) -> bytes:
    write(path, {"general.architecture": "clip", "clip.has_vision_encoder": True}, [])
    return path.read_bytes()


@pytest.mark.parametrize("quant", ["Q4_K_M", "BF16"])
def test_the_picture_encoder_comes_along(fake: Start, quant: str, tmp_path: Path) -> None:
    encoder = picture_encoder(tmp_path / "x.gguf")
    files = {**FILES, **SHARDS, "mmproj-F32.gguf": b"32", "mmproj-m-F16.gguf": encoder, "mmproj-BF16.gguf": b"16"}
    server = fake(files)
    path = hub.pull(f"user/repo:{quant}")
    found = encoder_beside(path)
    assert found is not None and found.name == "mmproj-m-F16.gguf" and found.read_bytes() == encoder
    assert hub.names() == [f"user/repo:{quant}"], "it is no model itself"
    server.asked.clear()
    hub.pull(f"user/repo:{quant}")
    assert len(server.asked) == 1
    hub.remove(hub.models_of("user/repo")[0])
    assert not repo_folder("user/repo").exists(), "it goes with the last model"


def test_the_picture_encoder_stays_away_or_comes_alone(fake: Start) -> None:
    server = fake(FILES | {"mmproj-F16.gguf": b"16"})
    hub.pull("user/repo", mmproj=False)
    assert not any("mmproj" in path for path in server.paths())
    assert hub.pull("user/repo:mmproj-F16.gguf").read_bytes() == b"16"


@pytest.mark.parametrize(
    ("model", "files", "expected"),
    [
        ("m.gguf", ["m.gguf"], None),
        ("m.gguf", ["mmproj-a.gguf", "mmproj-b-Q8_0.gguf"], "mmproj-b-Q8_0.gguf"),
        ("a/m.gguf", ["b/mmproj.gguf", "mmproj-F32.gguf"], "mmproj-F32.gguf"),
        ("a/m.gguf", ["a/mmproj-bf16.gguf", "mmproj-f16.gguf"], "mmproj-f16.gguf"),
    ],
)
def test_which_encoder(model: str, files: list[str], expected: str | None) -> None:
    assert huggingface.encoder_for(model, files) == expected


def test_revisions(fake: Start) -> None:
    server = fake(FILES)
    assert hub.pull("user/repo", revision="v1").parent.name == COMMIT
    assert "/api/models/user/repo/revision/v1" in server.paths()
    assert (repo_folder("user/repo") / "refs" / "v1").read_text() == COMMIT
    with pytest.raises(ModelNotFound, match="user/repo has no revision feature/x: give a branch"):
        hub.pull("user/repo", revision="feature/x")
    with pytest.raises(RequestError, match="it must be a branch, a tag or a commit"):
        hub.pull("user/repo", revision="../../x")
    with pytest.raises(RequestError, match="smollm2 has no revision v1"):
        hub.pull("smollm2", revision="v1")


def test_a_file_by_its_name(fake: Start) -> None:
    server = fake(FILES)
    expected = hub.pull("user/repo:Q8_0")
    for name in ("user/repo", "hf:user/repo", f"{server.url}/user/repo", f"{server.url}/user/repo/tree/main"):
        assert hub.pull(name, file="m-Q8_0.gguf") == expected
    with pytest.raises(RequestError, match=r"user/repo:Q8_0 names Q8_0, and file is m-Q8_0.gguf: give one of them"):
        hub.pull("hf:user/repo:Q8_0", file="m-Q8_0.gguf")
    for name in ("smollm2", f"{server.cdn}/user/repo/m-Q8_0.gguf"):
        with pytest.raises(RequestError, match="is not a repository: write user/repo"):
            hub.pull(name, file="m-Q8_0.gguf")


def test_force_fetches_again(fake: Start) -> None:
    server = fake(FILES)
    path = hub.pull("user/repo")
    path.resolve().write_bytes(bytes(len(MODEL)))  # damaged, with the same size
    assert hub.pull("user/repo").read_bytes() != MODEL
    server.sent = 0
    assert hub.pull("user/repo", force=True).read_bytes() == MODEL and server.sent == len(MODEL) + 1
    path.resolve().write_bytes(b"short")
    assert hub.pull("user/repo").read_bytes() == MODEL, "another size is noticed"


def test_the_sha256_that_a_file_must_have(fake: Start) -> None:
    server = fake(FILES | SHARDS)
    with pytest.raises(DownloadError, match=rf"m-Q4_K_M.gguf has the SHA-256 {DIGEST} on the Hub, not 0000"):
        hub.pull("user/repo", sha256="0" * 64)
    assert server.sent == 0
    path = hub.pull("user/repo", sha256=DIGEST.upper())
    path.resolve().write_bytes(bytes(len(MODEL)))
    assert hub.pull("user/repo", sha256=DIGEST).read_bytes() == MODEL, "a damaged file is replaced"
    with pytest.raises(RequestError, match="one of 3 files"):
        hub.pull("user/repo:bf16", sha256=DIGEST)
    with pytest.raises(RequestError, match="64 hexadecimal digits"):
        hub.pull("user/repo", sha256="abc")
    with pytest.raises(DownloadError, match=r"smollm2 has the SHA-256 .*, not"):
        hub.pull("smollm2", sha256=DIGEST)


@pytest.mark.parametrize("name", ["../m.gguf", "/etc/m.gguf", "a/../../m.gguf"])
def test_names_that_lead_elsewhere(fake: Start, name: str) -> None:
    fake({name: MODEL})
    with pytest.raises(DownloadError, match="such a name is not taken"):
        hub.pull("user/repo")


# ---- tokens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["variable", "file"])
def test_cve_2025_51471_the_token_goes_to_the_hub_alone(
    fake: Start, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ollama's went to whichever host a registry named. Redirects to others are followed without it."""
    if place == "variable":
        monkeypatch.setenv("HF_TOKEN", TOKEN)
    else:
        (tmp_path / "token").write_text(TOKEN + "\n")
    server = fake(FILES, private=True)
    hub.pull("user/repo")
    assert {asked.token for asked in server.asked if asked.host == "hub"} == {f"Bearer {TOKEN}"}
    assert {asked.token for asked in server.asked if asked.host == "cdn"} == {None}
    server.asked.clear()
    hub.pull(f"{server.cdn}/user/repo/m-Q8_0.gguf")
    assert {asked.token for asked in server.asked} == {None}


def test_a_header_is_private_too(fake: Start, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """`llamina show URL`: the token goes where a pull sends it; without a network nothing is asked."""
    server = fake({"m.gguf": golden("stories260K.gguf").read_bytes()}, private=True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    page, elsewhere = f"{server.url}/user/repo/resolve/main/m.gguf", f"{server.cdn}/user/repo/m.gguf"
    for url in (page, elsewhere):
        result = CliRunner().invoke(cli, ["show", url])
        assert result.exit_code == 0 and "architecture    llama" in result.stdout, result.stderr
    assert {asked.token for asked in server.asked if asked.host == "hub"} == {f"Bearer {TOKEN}"}
    assert {asked.token for asked in server.asked if asked.host == "cdn"} == {None}
    server.asked.clear()
    result = CliRunner().invoke(cli, ["show", page], env={"LLAMINA_OFFLINE": "1"})
    assert result.exit_code == 1 and "is not here, and LLAMINA_OFFLINE is set" in result.stderr
    assert server.asked == []
    hub.pull(elsewhere)
    server.asked.clear()
    result = CliRunner().invoke(cli, ["show", elsewhere], env={"LLAMINA_OFFLINE": "1"})
    assert result.exit_code == 0 and server.asked == [], result.stderr


def test_a_token_and_a_revision_to_load(fake: Start, golden: Callable[[str], Path]) -> None:
    server = fake({"m-Q4_K_M.gguf": golden("stories260K.gguf").read_bytes()}, private=True)
    with llamina.load("hf:user/repo", revision="v1", token=TOKEN, threads=1, backend="reference") as engine:
        assert engine.runner.file.source.endswith("m-Q4_K_M.gguf")
    assert "/api/models/user/repo/revision/v1" in server.paths()
    assert {asked.token for asked in server.asked if asked.host == "cdn"} == {None}
    for model in (golden("stories260K.gguf"), b"GGUF"):
        with pytest.raises(RequestError, match="revision and token are those of a repository"):
            llamina.load(model, revision="v1")
    with pytest.raises(RequestError, match="is a file, which has no revision"):
        llamina.load(str(golden("stories260K.gguf")), revision="v1")


def test_without_the_right_token(fake: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = fake(FILES, private=True)
    with pytest.raises(ModelNotFound, match="is not on Hugging Face, or is private: check the name, or set HF_TOKEN"):
        hub.pull("user/repo")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    server.fault = lambda asked: 401
    with pytest.raises(DownloadError, match=r"user/repo may not be read \(401\): set HF_TOKEN") as error:
        hub.pull("user/repo")
    assert "hf_wrong" not in str(error.value)
    server.private, server.gated, server.fault = False, True, None
    with pytest.raises(DownloadError, match="user/repo is gated: accept its terms"):
        hub.pull("user/repo")


def test_signatures_are_not_told(fake: Start) -> None:
    server = fake(FILES)
    server.fault = lambda asked: 403 if asked.host == "cdn" else None
    with pytest.raises(DownloadError) as error:
        hub.pull("user/repo")
    assert "secret" not in str(error.value)


# ---- offline -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["LLAMINA_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline(fake: Start, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = fake(FILES)
    url = f"{server.cdn}/user/repo/m-Q8_0.gguf"
    path, other = hub.pull("user/repo"), hub.pull(url)
    server.asked.clear()
    monkeypatch.setenv(variable, "1")
    assert hub.pull("user/repo") == path and hub.pull(url) == other
    for name in ("some/other", f"{server.cdn}/user/repo/m-Q4_K_M.gguf", "smollm2"):
        with pytest.raises(DownloadError, match=rf"is not here, and {variable} is set: unset it"):
            hub.pull(name)
    with pytest.raises(ModelNotFound, match="has no Q8_0: it has Q4_K_M"):
        hub.pull("user/repo:Q8_0")
    assert server.asked == []
    monkeypatch.setenv(variable, "0")
    assert hub.pull("user/repo:Q8_0").read_bytes() == OTHER


# ---- addresses ---------------------------------------------------------------------------------------------


def test_an_address(fake: Start, store: Path) -> None:
    server = fake(FILES)
    url = f"{server.cdn}/user/repo/m-Q4_K_M.gguf"
    path = hub.pull(f"{url}?signature=1")
    assert path == store / "m-Q4_K_M.gguf" and path.read_bytes() == MODEL
    assert hub.names() == ["m-Q4_K_M"]
    server.asked.clear()
    assert hub.pull(f"{url}?signature=2") == path and len(server.asked) == 1, "it has not changed"
    assert hub.obtain(url) == path and len(server.asked) == 1, "what is here is not asked for"
    server.repos["user/repo"]["m-Q4_K_M.gguf"] = OTHER
    assert hub.pull(url).read_bytes() == OTHER
    path.write_bytes(b"damaged")
    assert hub.pull(url).read_bytes() == OTHER
    server.fault = lambda asked: 403
    assert hub.pull(url).read_bytes() == OTHER, "a signature whose time is over"
    hub.remove(hub.models_of("m-Q4_K_M")[0])
    assert not list(store.iterdir())
    with pytest.raises(DownloadError, match=r"answered 403 Forbidden"):
        hub.pull(url)


def test_an_address_resumed_after_the_file_changed(fake: Start, store: Path) -> None:
    server = fake({"m.gguf": MODEL})
    url = f"{server.cdn}/user/repo/m.gguf"

    def fault(asked: Asked) -> int | None:
        return 403 if asked.range and asked.range.startswith("bytes=65536") else None

    server.fault = fault
    with pytest.raises(DownloadError):
        hub.pull(url)
    assert (store / ".m.gguf.part").exists() and not (store / "m.gguf").exists() and hub.names() == []
    server.fault, server.repos["user/repo"]["m.gguf"] = None, OTHER
    assert hub.pull(url).read_bytes() == OTHER


def test_a_file_that_changes_while_it_is_fetched(fake: Start, store: Path) -> None:
    server = fake({"m.gguf": MODEL})

    def fault(asked: Asked) -> None:
        if asked.range and asked.range.startswith("bytes=65536"):
            server.repos["user/repo"]["m.gguf"] = OTHER

    server.fault = fault
    with pytest.raises(DownloadError, match=r"m.gguf changed while it was fetched: try again"):
        hub.pull(f"{server.cdn}/user/repo/m.gguf")
    assert hub.names() == []
    assert hub.pull(f"{server.cdn}/user/repo/m.gguf").read_bytes() == OTHER


def test_shards_at_an_address(fake: Start, store: Path) -> None:
    server = fake(SHARDS)
    first = hub.pull(f"{server.cdn}/user/repo/BF16/m-BF16-00001-of-00003.gguf?key=1")
    assert [path.name for path in hub.Model("x", first).files] == [name.removeprefix("BF16/") for name in SHARDS]
    assert hub.obtain(f"{server.cdn}/user/repo/BF16/m-BF16-00001-of-00003.gguf") == first


def test_two_addresses_with_the_same_name(fake: Start, store: Path) -> None:
    server = fake({"a/m.gguf": MODEL, "b/m.gguf": OTHER})
    hub.pull(f"{server.cdn}/user/repo/a/m.gguf")
    with pytest.raises(DownloadError, match=r"m.gguf is here already, from .*/a/m.gguf: .* --force"):
        hub.pull(f"{server.cdn}/user/repo/b/m.gguf")
    assert hub.pull(f"{server.cdn}/user/repo/b/m.gguf", force=True).read_bytes() == OTHER
    origin = Origin.read(store / "m.gguf")
    assert origin is not None and origin.url.endswith("/b/m.gguf")
    (store / "mine.gguf").write_bytes(b"GGUF")
    with pytest.raises(DownloadError, match="from elsewhere"):
        hub.pull(f"{server.cdn}/user/repo/mine.gguf")


def test_addresses_that_cannot_be(fake: Start) -> None:
    server = fake({"m.gguf": b""})
    with pytest.raises(DownloadError, match=r"m.gguf is empty: check the address"):
        hub.pull(f"{server.cdn}/user/repo/m.gguf")
    with pytest.raises(ModelNotFound, match=r"no.gguf: the server answered 404"):
        hub.pull(f"{server.cdn}/user/repo/no.gguf?secret=1")
    for url in (
        f"{server.cdn}/user/repo/",
        "https://a.org/model.bin",
        "https://a.org/.gguf",
        "https://a.org/a%5Cb.gguf",
    ):
        with pytest.raises(RequestError, match="does not end with the name of a GGUF file"):
            hub.pull(url)


def test_pages_of_the_hub_are_repositories(fake: Start) -> None:
    server = fake(FILES)
    expected = hub.pull("user/repo")
    for page in ("", "/", "/tree/main", "/blob/main/m-Q4_K_M.gguf", "/resolve/main/m-Q4_K_M.gguf?download=true"):
        assert hub.pull(f"{server.url}/user/repo{page}") == expected
    assert hub.find(f"{server.url}/user/repo/blob/main/m-Q4_K_M.gguf") == expected
    assert huggingface.from_url("https://huggingface.co/u/r/blob/v1/BF16/m.gguf") == ("u/r:BF16/m.gguf", "v1")
    assert huggingface.from_url("https://example.com/u/r") is None


def test_loading_by_all_these_names(fake: Start, golden: Callable[[str], Path]) -> None:
    server = fake({"stories-Q4_K_M.gguf": golden("stories260K.gguf").read_bytes()})
    for name in ("hf:user/repo", "hf:user/repo:Q4_K_M", f"{server.cdn}/user/repo/stories-Q4_K_M.gguf"):
        with llamina.load(name, threads=1, backend="reference") as engine:
            assert engine.generate("Once", max_tokens=3, temperature=0).text == " upon a time"


def test_hugging_faces_own_library_finds_what_was_pulled(fake: Start, tmp_path: Path) -> None:
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    server = fake(FILES)
    path = hub.pull("user/repo", revision="v1")
    found = try_to_load_from_cache("user/repo", "m-Q4_K_M.gguf", cache_dir=tmp_path / "hf", revision="v1")
    assert found == str(path)
    server.fault = lambda asked: 403 if asked.host == "cdn" else None
    with pytest.raises(DownloadError):
        hub.pull("user/repo:Q8_0")  # leaves a lock and no more
    scanned = scan_cache_dir(tmp_path / "hf")
    assert scanned.size_on_disk == len(MODEL) and not scanned.warnings


def test_without_symbolic_links(fake: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where users may not make any: the file itself is in the snapshot."""

    def refuse(*_: object) -> None:
        raise OSError("a privilege is missing")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    server = fake(FILES)
    path = hub.pull("user/repo")
    assert path.read_bytes() == MODEL and not path.is_symlink() and hub.leftovers() == []
    server.asked.clear()
    assert hub.pull("user/repo") == path and len(server.asked) == 1
    assert hub.pull("user/repo", force=True).read_bytes() == MODEL
