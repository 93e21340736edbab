"""WordPiece beside `tokenizers`, with which such models were trained."""

import random
from collections.abc import Callable

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from llamina.tokenizer import Tokenizer

TEXTS = [
    "한국어 처리는 재미있다",  # Hangul: syllables become letters
    "가각힣 \u1100\u1161\u11a8",
    "がぎぐげご ガギグゲゴ ぱぴぷ パピプ ヴ ｶﾞ",  # voiced kana: the sound mark goes
    "Tiếng Việt: Đường phố Hà Nội",
    "हिन्दी में क़िताब, বাংলা ভাষায় কো",  # marks that take space stay, those that take none go
    "தமிழ் ஔவையார், ශ්‍රී ලංකා",
    "É À ü ñ İstanbul ΑΣ ΰ ﬁ Å",
    "漢字かな交じり文。\uf900\ufa30\U0002f800",
    "tabs\tand\vcontrols\x00\x1f\x7f\x85\u200b\ufeff\u2028\u3000end\ufffd",
    "don't stop—$5 × 3 ≠ 15¥ <x>`y`^z~",
    "a" * 100 + " " + "a" * 101 + " " + "漢" * 120,
    "",
    " \n ",
]


@pytest.fixture(scope="module")
def pair(tokenizer: Callable[[str], Tokenizer]) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """A BERT vocabulary as we and as `tokenizers` read it."""
    ours = tokenizer("bert-bge")
    ids = {}
    for token in range(ours.vocab_size):
        text = ours.token_text(token)
        ids[text[1:] if text[0] == "▁" else text if ours.is_special(token) else f"##{text}"] = token
    theirs = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer()
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return ours, theirs


@pytest.mark.parametrize("text", TEXTS)
def test_same_as_tokenizers(text: str, pair: tuple[Tokenizer, tokenizers.Tokenizer]) -> None:
    ours, theirs = pair
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


def test_random_text_same_as_tokenizers(pair: tuple[Tokenizer, tokenizers.Tokenizer]) -> None:
    ours, theirs = pair
    rng = random.Random(5)
    blocks = [(0x20, 0x7F), (0x20, 0x250), (0x300, 0x1200), (0x1E00, 0xD7FF), (0xAC00, 0xD7A4), (0xE000, 0x1FFFF)]
    for _ in range(2000):
        text = "".join(chr(rng.randrange(*rng.choice(blocks))) for _ in range(rng.randint(1, 40)))
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text
