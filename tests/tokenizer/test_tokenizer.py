"""Round trips, streams, special tokens, refusals."""

import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamina.errors import ModelFileError, RequestError, UnsupportedModel
from llamina.tokenizer import Tokenizer
from llamina.tokenizer.pretokenizers import PRETOKENIZERS
from llamina.tokenizer.unigram import CharacterMap

sys.path.insert(0, str(Path(__file__).parent))

import vocabularies

Find = Callable[[str], Tokenizer]

relaxed = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@relaxed
@given(text=TEXTS, name=st.sampled_from(["gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "llama-spm"]))
def test_decode_undoes_encode(text: str, name: str, tokenizer: Find) -> None:
    ids = tokenizer(name).encode(text)
    # The vocabulary's own sign for a space cannot be told from one.
    expected = text.replace("▁", " ") if name == "llama-spm" else text
    assert tokenizer(name).decode(ids, skip_special=False) == expected


@relaxed
@given(text=TEXTS, name=st.sampled_from(["gpt-2", "llama-spm", "bert-bge", "falcon"]), parse=st.booleans())
def test_pieces_make_the_text(text: str, name: str, parse: bool, tokenizer: Find) -> None:
    found = tokenizer(name)
    ids = found.encode(text, parse_special=parse)
    whole = b"".join(found.token_bytes(token) for token in ids).decode("utf-8", "replace")
    assert found.decode(ids, skip_special=False, continued=True) == whole


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "phi-3"])
def test_stream_is_decode(name: str, tokenizer: Find) -> None:
    found, rng = tokenizer(name), random.Random(name)
    for _ in range(200):
        ids = [rng.randrange(found.vocab_size) for _ in range(rng.randint(0, 20))]
        ids += found.encode("👨‍👩‍👧‍👦 in two 🙂")
        skip, continued = rng.random() < 0.5, rng.random() < 0.5
        stream = found.stream(skip, continued=continued)
        parts = [stream.push(token) for token in ids] + [stream.flush()]
        assert "".join(parts) == found.decode(ids, skip, continued=continued)


def test_stream_holds_back_half_a_character(tokenizer: Find) -> None:
    found = tokenizer("gpt-2")
    ids = found.encode("a🙂b")
    stream = found.stream()
    parts = [stream.push(token) for token in ids]
    assert len(ids) > 3 and "".join(parts) == "a🙂b" and "\ufffd" not in "".join(parts)
    assert stream.push(ids[1]) == "" and stream.flush() == "\ufffd" and stream.push(ids[0]) == "a"


def test_leading_space_of_sentencepiece(tokenizer: Find) -> None:
    found = tokenizer("llama-spm")
    ids = found.encode("Hello world")
    assert found.decode(ids) == "Hello world"
    assert found.decode(ids, continued=True) == " Hello world"
    assert found.decode([found.bos or 0, *ids]) == " Hello world"  # as llama.cpp does


def test_special_tokens_are_parsed_when_asked(tokenizer: Find) -> None:
    found = tokenizer("qwen2")
    start, end = found.token_id("<|im_start|>"), found.token_id("<|im_end|>")
    ids = found.encode("<|im_start|>user\nhi<|im_end|>", parse_special=True)
    assert (ids[0], ids[-1]) == (start, end)
    assert not {start, end} & set(found.encode("<|im_start|>user\nhi<|im_end|>"))
    assert found.decode(ids) == "user\nhi"
    assert found.decode(ids, skip_special=False) == "<|im_start|>user\nhi<|im_end|>"


def test_user_defined_tokens_are_always_parsed() -> None:
    found = Tokenizer.from_metadata(vocabularies.letters())
    think = found.token_id("<think>")
    assert found.encode("a<think>b") == [found.token_id("a"), think, found.token_id("b")]
    assert found.decode([think or 0]) == "<think>"
    assert not found.is_special(think or 0)


def test_spaces_beside_special_tokens(tokenizer: Find) -> None:
    found = tokenizer("phi-3")
    assert found.encode("<|user|> \n hi", parse_special=True) == found.encode("<|user|>hi", parse_special=True)


def test_added_tokens(tokenizer: Find) -> None:
    llama, bert = tokenizer("llama-spm"), tokenizer("bert-bge")
    assert llama.encode("a", add_special=True) == [1, *llama.encode("a")]
    assert bert.encode("a", add_special=True) == [101, *bert.encode("a"), 102]
    assert llama.encode("", add_special=True) == [1] and llama.encode("") == []
    ends = Tokenizer.from_metadata(vocabularies.sentencepiece(add_eos_token=True))
    assert ends.encode("a", add_special=True)[-1] == ends.eos == 2


def test_ends_of_generation(tokenizer: Find) -> None:
    qwen = tokenizer("qwen2")
    assert {"<|im_end|>", "<|endoftext|>"} <= {qwen.token_text(t) for t in qwen.eog}
    assert {tokenizer("llama-spm").token_text(t) for t in tokenizer("llama-spm").eog} == {"</s>"}
    found = tokenizer("llama-bpe")
    assert {"<|eot_id|>", "<|end_of_text|>"} <= {found.token_text(t) for t in found.eog}
    assert all(found.is_control(t) and found.is_eog(t) for t in found.eog)


def test_harmony_end_only_ends_a_message() -> None:
    texts = ["a", "<|end|>", "<|return|>", "<|call|>", "<|channel|>"]
    tokens = [(text, 0.0, vocabularies.CONTROL) for text in texts]
    found = Tokenizer.from_metadata(vocabularies.metadata("gpt2", tokens, pre="gpt-4o", merges=[], eos_token_id=2))
    assert found.eog == {2, 3}
    assert not found.is_control(1) and not found.is_control(4)


def test_pretokenizer_decides_the_defaults() -> None:
    assert Tokenizer.from_metadata(vocabularies.letters("llama-bpe")).add_bos
    assert not Tokenizer.from_metadata(vocabularies.letters("gpt-2")).add_bos
    assert not Tokenizer.from_metadata(vocabularies.letters("llama-bpe", add_bos_token=False)).add_bos
    assert Tokenizer.from_metadata(vocabularies.letters("chatglm-bpe")).bos is None


@pytest.mark.parametrize("name", PRETOKENIZERS)
def test_every_pretokenizer_keeps_the_text(name: str) -> None:
    # The two that do not spell bytes have another alphabet.
    if PRETOKENIZERS[name].byte_level:
        text = "It's 12345678 ½ days,  世界 がぎ 한글 नमस्ते ÀÉ aB\r\n\t x…  \n\n 🙂!!  "
        found = Tokenizer.from_metadata(vocabularies.letters(name))
        assert found.decode(found.encode(text)) == text


def test_surrogates_are_replaced(tokenizer: Find) -> None:
    found = tokenizer("gpt-2")
    assert found.decode(found.encode("a\ud800b")) == "a\ufffdb"
    assert found.decode(found.encode("\ud83d\ude00")) == "😀"


def test_letters_that_are_no_tokens_leave_no_trace() -> None:
    found = Tokenizer.from_metadata(vocabularies.whitespace())
    assert [found.token_text(t) for t in found.encode("é😀a a\x1fb")] == ["é", "a", "a", "b"]


def test_merges_of_missing_tokens_are_ignored() -> None:
    metadata = vocabularies.letters() | {"tokenizer.ggml.merges": ["a b", "nosuch token"]}
    found = Tokenizer.from_metadata(metadata)
    assert found.decode(found.encode("ab")) == "ab"


def test_bytes_that_are_no_text() -> None:
    metadata = vocabularies.letters()
    metadata["tokenizer.ggml.tokens"][-1] = b"\xff\xfe".decode("utf-8", "surrogateescape")
    found = Tokenizer.from_metadata(metadata)
    assert found.token_bytes(found.vocab_size - 1) == b"\xff\xfe"
    assert found.decode(found.encode("ab")) == "ab"


@pytest.mark.parametrize("model", [None, "none", "no_vocab", "martian"])
def test_unknown_models_are_refused(model: str | None) -> None:
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.ggml\.model"):
        Tokenizer.from_metadata({"tokenizer.ggml.model": model})


def test_damaged_vocabularies_are_refused() -> None:
    good = vocabularies.letters()
    with pytest.raises(UnsupportedModel, match="'martian'"):
        Tokenizer.from_metadata(good | {"tokenizer.ggml.pre": "martian"})
    with pytest.raises(ModelFileError, match="tokens is missing"):
        Tokenizer.from_metadata(good | {"tokenizer.ggml.tokens": []})
    with pytest.raises(ModelFileError, match="scores has 3 values"):
        Tokenizer.from_metadata(good | {"tokenizer.ggml.scores": np.zeros(3)})
    with pytest.raises(ModelFileError, match="merges is missing"):
        Tokenizer.from_metadata({k: v for k, v in good.items() if not k.endswith("merges")})
    with pytest.raises(ModelFileError, match="charsmap"):
        CharacterMap(np.array([255, 255, 0, 0, 1], np.uint8))


@pytest.mark.parametrize("text", ["<0xme>", "<0x>", "<0x1G>", "<0x-1>", "0x0A", "<0x0A>>"])
@pytest.mark.parametrize("make", [vocabularies.sentencepiece, vocabularies.plamo], ids=["sentencepiece", "plamo"])
def test_damaged_byte_tokens_are_refused(text: str, make: Callable[[], dict[str, Any]]) -> None:
    metadata = make()
    texts = metadata["tokenizer.ggml.tokens"]
    texts[texts.index("<0x0A>")] = text
    with pytest.raises(ModelFileError, match=f"the token '{re.escape(text)}' is said to be a byte"):
        Tokenizer.from_metadata(metadata)


def test_tokens_outside_the_vocabulary_are_refused(tokenizer: Find) -> None:
    for token in (-1, 50257):
        with pytest.raises(RequestError, match="outside the vocabulary"):
            tokenizer("gpt-2").decode([token])


def test_named_templates() -> None:
    more = {"tokenizer.chat_template": "{{ bos_token }}d", "tokenizer.chat_template.tool_use": "t"}
    found = Tokenizer.from_metadata(vocabularies.sentencepiece() | more)
    assert found.chat_template == "{{ bos_token }}d"
    assert list(found.chat_templates) == ["default", "tool_use"]
    assert found.template().render([]) == "<s>d"
    assert found.template("tool_use").render([]) == "t"
    assert found.render_chat([]) == "<s>d"
    assert found.render_chat([], tools=[{}]) == "t"
    assert found.render_chat([], tools=[{}], template="default") == "<s>d"
    with pytest.raises(RequestError, match="'rag'"):
        found.template("rag")
    assert Tokenizer.from_metadata(vocabularies.letters()).chat_template is None


@pytest.mark.parametrize("name", ["bert-bge", "llama-spm", "gpt-2"])
def test_a_long_word_is_no_trap(name: str, tokenizer: Find) -> None:
    started = time.monotonic()
    assert tokenizer(name).encode("a" * 50_000)
    assert time.monotonic() - started < 5
