"""Names → files that are here."""

from pathlib import Path

import pytest

from llamina import hub
from llamina.errors import ModelNotFound

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHARDS = ["Big.Q8_0-00001-of-00002.gguf", "Big.Q8_0-00002-of-00002.gguf"]


def cached(folder: Path, repo: str, name: str, content: bytes = b"GGUF", commit: str = "c1") -> Path:
    """A file in the cache of Hugging Face's library, as it lays it out."""
    root = folder.parents[1] / "hf" / f"models--{repo.replace('/', '--')}"
    blob, link = root / "blobs" / f"{len(content)}", root / "snapshots" / commit / name
    for path in (blob, link):
        path.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    link.symlink_to(blob)
    return link


@pytest.mark.parametrize(
    "name", ["smollm2", "SmolLM2", FILE, "SmolLM2-135M-Instruct.Q4_1", "smollm2-135m-instruct-q4_1"]
)
def test_a_pulled_model_is_found_by_all_its_names(store: Path, name: str) -> None:
    (store / FILE).write_bytes(b"GGUF")
    assert hub.find(name) == store / FILE


def test_any_file_in_the_store_is_found_by_its_stem(store: Path) -> None:
    (store / "My Model_v2.gguf").write_bytes(b"GGUF")
    assert hub.find("my-model-v2") == store / "My Model_v2.gguf"
    assert hub.names() == ["My Model_v2"]


def test_a_missing_model_error_says_what_is_known_and_how_to_get_it(store: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"'nothing' is neither a file nor a pulled model, nor in .*smollm2"):
        hub.find("nothing")
    for name in ("gemma3-270m", "User/Repo:q8_0"):
        with pytest.raises(ModelNotFound, match=rf"'{name}' has not been pulled: get it with `llamina pull {name}`"):
            hub.find(name)


def test_shards_are_one_model(store: Path) -> None:
    for number, name in enumerate(SHARDS):
        (store / name).write_bytes(b"x" * (number + 1))
    (model,) = hub.models()
    assert (model.path, model.size) == (store / SHARDS[0], 3)
    hub.remove(model)
    assert not list(store.glob("*.gguf"))


def test_hugging_face_models_are_found_by_repository_and_quant(store: Path) -> None:
    small = cached(store, "User/Repo-GGUF", "repo-q4_k_m.gguf", b"4")
    large = cached(store, "User/Repo-GGUF", "repo-Q8_0.gguf", b"88")
    cached(store, "User/Repo-GGUF", "mmproj-F16.gguf", b"333")
    assert hub.names() == ["User/Repo-GGUF:Q4_K_M", "User/Repo-GGUF:Q8_0"]
    assert hub.find("user/repo-gguf:q8_0") == large
    assert hub.find("user/repo-gguf") == small  # the preferred quant
    assert hub.find("REPO-Q8_0") == large


def test_removing_one_quant_leaves_the_others(store: Path) -> None:
    small = cached(store, "u/r", "r-Q4_0.gguf", b"same")
    cached(store, "u/r", "r-Q8_0.gguf", b"same!")
    old = cached(store, "u/r", "r-Q8_0.gguf", b"older!", "c0")
    for model in hub.models_of("u/r:q8_0"):
        hub.remove(model)
    assert small.read_bytes() == b"same"
    assert not old.is_symlink()
    assert [path.name for path in (old.parents[2] / "blobs").iterdir()] == ["4"]


def test_removing_a_file_keeps_content_that_another_shares(store: Path) -> None:
    first = cached(store, "u/r", "a-Q4_0.gguf", b"same")
    twin = first.with_name("b-Q8_0.gguf")
    twin.symlink_to(first.resolve())
    hub.remove(hub.models_of("u/r:q8_0")[0])
    assert first.read_bytes() == b"same"


def test_removing_the_last_file_removes_the_repository(store: Path) -> None:
    only = cached(store, "u/r", "r-Q4_0.gguf")
    for model in hub.models_of("U/R"):
        hub.remove(model)
    assert not only.parents[2].exists()
