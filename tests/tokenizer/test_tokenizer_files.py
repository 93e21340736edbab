"""Tokenizers from files of several kinds, and many texts at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as RustTokenizer

import llamina
from convert.convert_folders import TEXTS, TOKENIZERS
from llamina import Tokenizer
from llamina.errors import LlaminaError, ModelFileError, ModelNotFound, RequestError, UnsupportedModel
from llamina.gguf import open_model, write


@pytest.mark.parametrize("kind", ["bpe", "spm-json", "wordpiece"])
def test_a_tokenizer_json_has_the_ids_of_its_own_library(kind: str) -> None:
    path = TOKENIZERS / kind / "tokenizer.json"
    theirs = RustTokenizer.from_file(str(path))
    expected = [theirs.encode(text, add_special_tokens=False).ids for text in TEXTS]
    for ours in (Tokenizer.from_file(path), Tokenizer.from_file(path.parent), Tokenizer.from_json(path.read_text())):
        assert ours.encode_batch(TEXTS) == expected
        assert ours.vocab_size == theirs.get_vocab_size()


@pytest.mark.parametrize("kind", ["spm", "unigram"])
def test_a_sentencepiece_file(kind: str) -> None:
    facts = json.loads((TOKENIZERS / kind / "facts.json").read_text())
    assert Tokenizer.from_file(TOKENIZERS / kind).encode_batch(TEXTS) == facts["ids"]


def test_a_gguf_file(talker: Path) -> None:
    found = Tokenizer.from_file(talker)
    assert found.chat_template and found.encode_batch(["Once", "upon"], add_special=True) == [
        found.encode("Once", add_special=True),
        found.encode("upon", add_special=True),
    ]


def test_what_lies_beside_a_json_counts_and_what_is_here_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text has no folder, not even the current one."""
    text = (TOKENIZERS / "bpe" / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text)
    (tmp_path / "chat_template.jinja").write_text("{{ 7 }}")
    assert Tokenizer.from_file(tmp_path / "tokenizer.json").render_chat([]) == "7"
    monkeypatch.chdir(tmp_path)
    assert Tokenizer.from_json(text).chat_template is None


@pytest.fixture
def silent(files: Any, tmp_path: Path) -> Path:
    """A model without a vocabulary, in a folder of its own."""
    file = open_model(files("llama-dense"))
    write(tmp_path / "silent.gguf", file.metadata, file.tensors.values())
    return tmp_path / "silent.gguf"


def test_a_model_without_a_vocabulary_gets_one(silent: Path) -> None:
    source = small(silent.parent / "other")
    with llamina.load(silent, threads=1, context=64, tokenizer=source) as engine:
        assert engine.encode("abc") == Tokenizer.from_file(source).encode("abc", add_special=True)
        assert len(engine.generate("ab", max_tokens=3, ignore_eos=True).tokens) == 3
    with llamina.load(silent, threads=1, context=64) as engine, pytest.raises(UnsupportedModel):
        engine.encode("abc")
    small(silent.parent)  # now it lies beside the model
    with llamina.load(silent, threads=1, context=64, chat_template="chatml") as engine:
        assert engine.tokenizer.vocab_size == 128 and "im_start" in engine.render_chat("a")


def small(folder: Path) -> Path:
    """A tokenizer.json of a few tokens."""
    folder.mkdir(exist_ok=True)
    model = {"type": "BPE", "vocab": {chr(97 + i): i for i in range(26)}, "merges": []}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    text = {"version": "1.0", "added_tokens": [], "model": model, "pre_tokenizer": level, "decoder": level}
    (folder / "tokenizer.json").write_text(json.dumps(text))
    return folder / "tokenizer.json"


def test_a_tokenizer_of_another_model(silent: Path, talker: Path) -> None:
    for path, message in ((TOKENIZERS / "bpe", "do not belong together"), (talker, "belongs to another model")):
        with (
            llamina.load(silent, threads=1, context=64, tokenizer=path) as engine,
            pytest.raises(LlaminaError, match=message),
        ):
            engine.encode("abc")


def test_templates_by_name(talker: Path) -> None:
    found = Tokenizer.from_file(talker)
    said = [{"role": "user", "content": "Hi"}]
    assert found.render_chat(said, template="llama3").startswith("<|start_header_id|>user<|end_header_id|>\n\nHi")
    with pytest.raises(RequestError, match="no chat template 'chatlm'"):
        found.render_chat(said, template="chatlm")


def test_refusals(tmp_path: Path, talker: Path) -> None:
    with pytest.raises(ModelNotFound):
        Tokenizer.from_file(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError, match=r"has none of tokenizer\.json"):
        Tokenizer.from_file(tmp_path)
    with pytest.raises(ModelFileError, match="not JSON"):
        Tokenizer.from_json("{")
    with pytest.raises(ModelFileError, match="has none of"):
        Tokenizer.from_json("{}")
    with pytest.raises(RequestError, match="texts is one text"):
        Tokenizer.from_file(talker).encode_batch("Once")
