"""Tokenizers from files of several kinds, and many texts at once."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as RustTokenizer

from convert.convert_folders import TEXTS, TOKENIZERS
from llamina import Tokenizer
from llamina.errors import ModelFileError, ModelNotFound, RequestError


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
