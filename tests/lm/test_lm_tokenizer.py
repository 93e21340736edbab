"""BPE tokenizers built by hand or learned from text: the merges of `tokenizers`' trainer, and round trips."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from llamina.convert.settings import Settings
from llamina.errors import RequestError
from llamina.lm import BpeBuilder, BpeTokenizer, Vocab
from llamina.tokenizer import Tokenizer
from llamina.tokenizer.huggingface.metadata import tokenizer_metadata
from llamina.tokenizer.pieces import byte_letters

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LETTERS = byte_letters()


def spelt(token: str) -> bytes:
    return bytes(LETTERS[letter] for letter in token)


@pytest.fixture(scope="module")
def trained() -> BpeTokenizer:
    return BpeBuilder().train(TEXT, 700).build()


@pytest.mark.parametrize(
    ("text", "size", "least"),
    [
        (TEXT, 700, 2),
        ("the llama and the lamb and the ladder " * 3, 300, 2),
        ("low low low lower lowest newer newer wider", 400, 1),
        ("aaaa aa aaaaaa aaa banana", 300, 2),
        ("Grüße, Привет мир, 日本語 日本 🦙🦙", 320, 2),
    ],
    ids=["a page", "ties", "all pairs", "one letter", "bytes"],
)
def test_merges_are_those_of_tokenizers(text: str, size: int, least: int) -> None:
    theirs = RustTokenizer(BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=size, min_frequency=least, initial_alphabet=alphabet, show_progress=False)
    theirs.train_from_iterator([text], trainer)
    merges = [tuple(spelt(part) for part in pair) for pair in json.loads(theirs.to_str())["model"]["merges"]]
    ours = BpeBuilder().train(text, size, least).build()
    assert list(ours.merges) == merges and merges
    ids = {spelt(token): i for token, i in theirs.get_vocab().items()}
    assert [ids[token] for token in ours.vocab.tokens[:-1]] == list(range(ours.vocab_size - 1))
    assert ours.encode(TEXT) == theirs.encode(TEXT).ids


@given(st.text())
@settings(max_examples=60, deadline=None)
def test_every_text_comes_back(trained: BpeTokenizer, text: str) -> None:
    assert trained.decode(trained.encode(text)) == text


def test_merges_make_texts_shorter(trained: BpeTokenizer) -> None:
    assert len(trained.encode(TEXT)) < 0.5 * len(TEXT.encode())
    assert b" the" in trained.vocab.tokens


def test_learning_goes_on_where_it_ended() -> None:
    one = BpeBuilder().train(TEXT, 400).build()
    two = BpeBuilder().train(TEXT, 300).train(TEXT, 400).build()
    assert one.merges == two.merges


def test_merges_by_hand() -> None:
    builder = BpeBuilder().add_merge(b"l", b"a").add_merge(b"la", b"m").add_special("<pad>")
    tokenizer = builder.build(bos="<s>")
    assert [tokenizer.token_bytes(token) for token in tokenizer.encode("llama")] == [b"l", b"lam", b"a"]
    assert tokenizer.vocab.special == {"<pad>": 258, "<s>": 259, "<|endoftext|>": 260}
    assert tokenizer.encode("a", add_special=True)[0] == tokenizer.bos == 259
    assert tokenizer.eos == 260 and tokenizer.is_eog(260)
    assert tokenizer.encode("<pad>") != [258] and tokenizer.encode("<pad>", parse_special=True) == [258]
    with pytest.raises(RequestError, match="b'am' is no token yet: merge its own parts first"):
        builder.add_merge(b"l", b"am")
    with pytest.raises(RequestError, match="b'l' and b'a' are merged already"):
        builder.add_merge(b"l", b"a")
    with pytest.raises(RequestError, match="'<pad>' is there already"):
        builder.add_special("<pad>")
    with pytest.raises(RequestError, match="vocab_size is 10: there are 258 tokens already"):
        builder.train("x", 10)


def test_a_vocabulary() -> None:
    vocab = Vocab.gpt2_byte_vocab()
    assert vocab.size == 256 and vocab.id_to_bytes(0) == b"!" and vocab.bytes_to_id(b" ") == 220
    more = vocab.with_extra_tokens([b"la", b"ma"], ["<end>"])
    assert more.bytes_to_id(b"ma") == 257 and more.special_id("<end>") == 258 and more.special_id("<no>") is None
    assert more.bytes_to_id(b"<end>") is None
    with pytest.raises(RequestError, match="token 259 is outside the vocabulary of 259 tokens"):
        more.id_to_bytes(259)
    with pytest.raises(RequestError, match="the token b'a' is there twice"):
        Vocab((b"a", b"a"))
    with pytest.raises(RequestError, match="the token b'la' is there twice"):
        more.with_extra_tokens((), ["la"])
    with pytest.raises(RequestError, match="<end> is token 1: it must be from 0 to 0"):
        Vocab((b"a",), {"<end>": 1})
    with pytest.raises(RequestError, match="eos is '<no>', which is no special token"):
        BpeTokenizer(more, [], eos="<no>")
    with pytest.raises(RequestError, match="the special token 'Ġ' is spelt like another token"):
        BpeTokenizer(vocab.with_extra_tokens((), ["Ġ"]), [], eos="Ġ")
    with pytest.raises(RequestError, match="cannot be merged: b'lama' is no token"):
        BpeTokenizer(more, [(b"la", b"ma")], eos="<end>")


def test_a_saved_tokenizer(trained: BpeTokenizer, tmp_path: Path) -> None:
    """`tokenizers` reads it, and `llamina convert` makes the same keys of it."""
    trained.save(tmp_path)
    theirs = RustTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode(TEXT).ids == trained.encode(TEXT)
    assert theirs.decode(theirs.encode(TEXT).ids) == TEXT
    notes: list[str] = []
    keys = tokenizer_metadata(tmp_path, Settings({}), trained.vocab_size, None, notes)
    again = Tokenizer.from_metadata(keys)
    assert notes == [] and again.encode(TEXT) == trained.encode(TEXT)
    assert again.eos == trained.eos == trained.vocab.special_id("<|endoftext|>")
