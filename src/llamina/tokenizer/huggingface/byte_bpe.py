"""Byte-level BPE vocabularies, and `tokenizer.ggml.pre`, the name of their pre-tokenizer.

GGUF names pre-tokenizers instead of describing them. The name is found by trial: the known pre-tokenizer with which
samples of text become the same tokens as with the folder's own.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

from llamina.errors import RequestError, UnsupportedModel
from llamina.tokenizer.bpe import cuts
from llamina.tokenizer.huggingface.vocabulary import Vocabulary, merge_pairs
from llamina.tokenizer.pretokenizers import PRETOKENIZERS, Pretokenizer, pretokenizer

# Names that every reader of GGUF knows, preferred over others with the same effect.
_KNOWN = [
    *("llama-bpe", "dbrx", "qwen2", "stablelm2", "gpt-2", "command-r", "starcoder", "smollm", "falcon", "bloom"),
    *("deepseek-llm", "deepseek-coder", "deepseek-v3", "tekken", "gpt-4o", "qwen35", "default"),
]
SAMPLES = (
    "The quick brown fox can't; he'd've been I'LL WE'RE 'tis rock'n'roll don'T",
    "1 22 333 4444 55555 1234567890 3.14 1,000,000 v2.0 0x1F x86 ²³ ½ Ⅷ ٣٤٥",
    "  two  spaces   three\ttab\t\ttabs \n newline\n\n  \n \r\n\r\n end   ",
    "print('hi')  # comment\n    return {'a': [1, 2], \"b\": x[0] ** 2} //!\n",
    "!!! ... ?!?! ---===*** ~~~ ``` $5 €6 £7 <tag/> a_b a-b a/b @user #tag %p ^& |x|",
    "camelCase HTTPServer iPhone X.509 U.S.A. e.g. path/to/file.txt https://a.b/c?d=e&f",
    "Grüße aus Köln, œuvre naïve, Ångström, İstanbul, Привет мир, ПРИВЕТ, γειά σου, Ελλάδα",
    "我想在apple工作1314151天～。、，「引用」 日本語のテスト カタカナ 한국어 시험 ㄱㄴ",
    "🚀 rocket 😶‍🌫️ (fog) ✅🦙🦙 → ∑ ≠ ∞ ™ ° € … — – “quoted” ‘single’",
    "مرحبا بالعالم، كيف؟ שלום עולם ქართული Հայերեն",
    "I'm 'S 'T 's' ''' a'b 'Re 'lL x'ves\n'\n\n\n\nend\n ",
)
# Pre-tokenizers often differ only in combining marks; this sample decides between them.
MARKED = "ภาษาไทย កាន់តែ हिन्दी நன்றி"


def byte_pairs(
    tokenizer: Mapping[str, Any], rust: RustTokenizer, rules: Mapping[str, Any], pre: str | None
) -> Vocabulary:
    """Return a byte-level BPE vocabulary; `rules` is tokenizer_config.json, `pre` the pre-tokenizer, if known."""
    model = tokenizer["model"]
    merges = [" ".join(part.replace(" ", "Ġ") for part in pair) for pair in merge_pairs(model.get("merges", ()))]
    vocabulary = Vocabulary.of("gpt2", model["vocab"], merges=merges)
    if pre is not None and not pretokenizer(pre).byte_level:
        raise RequestError(f"{pre} is not for byte-level vocabularies: choose another", "pre")
    vocabulary.pre = pre or pretokenizer_name(
        rust, bool(model.get("ignore_merges")), rules.get("clean_up_tokenization_spaces")
    )
    return vocabulary


def pretokenizer_name(rust: RustTokenizer, ignore_merges: bool, clean_spaces: bool | None) -> str:
    """Return the name of the pre-tokenizer that gives the tokenizer's own tokens, the most similar of several.

    Raises UnsupportedModel if none does.
    """
    own, theirs = rust.pre_tokenizer, _read(rust)
    scores: dict[Pretokenizer, tuple[int, int, bool]] = {}
    for row in _rows():
        rust.pre_tokenizer = cuts(row)
        same = [(ids == a, spans == b) for (ids, spans), (a, b) in zip(_read(rust), theirs, strict=True)]
        scores[row] = sum(ids for ids, _ in same[:-1]), sum(spans for _, spans in same[:-1]), same[-1][1]
    rust.pre_tokenizer = own
    best = max(scores.values())
    if best[0] < len(SAMPLES):
        nearest = next(names[0] for row, names in _rows().items() if scores[row] == best)
        raise UnsupportedModel(
            f"GGUF has no name for the tokenizer's pre-tokenizer; the nearest is {nearest}, which gives "
            f"{best[0]} of {len(SAMPLES)} samples the same tokens: choose it or another with --pre"
        )

    def fitness(name: str) -> tuple[int, ...]:
        row = PRETOKENIZERS[name]
        _, similar, marks = scores[row]
        known = name in _KNOWN
        rules = row.ignore_merges == ignore_merges, row.default_bos, marks, row.clean_spaces == clean_spaces
        return similar, known, *rules, -_KNOWN.index(name) if known else 0

    return max((name for row, names in _rows().items() if scores[row][0] == best[0] for name in names), key=fitness)


def _rows() -> dict[Pretokenizer, list[str]]:
    """Return the byte-level pre-tokenizers, each with its names."""
    names: dict[Pretokenizer, list[str]] = {}
    for name, row in PRETOKENIZERS.items():
        if row.byte_level:
            names.setdefault(row, []).append(name)
    return names


def _read(rust: RustTokenizer) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Return what a tokenizer makes of each sample: token ids, and spans of the pre-tokenizer."""
    return [
        (
            rust.encode(text, add_special_tokens=False).ids,
            [span for _, span in rust.pre_tokenizer.pre_tokenize_str(text)],
        )
        for text in (*SAMPLES, MARKED)
    ]
