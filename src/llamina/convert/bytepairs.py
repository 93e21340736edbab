"""Byte-level vocabularies, and `tokenizer.ggml.pre`: the name of the way they cut text before merging.

GGUF names the cuts instead of writing them down. The name is found by trying: the known cut that gives samples of
text the same tokens as the folder's own pre-tokenizer.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

from llamina.convert.words import Words, merge_pairs
from llamina.errors import RequestError, UnsupportedModel
from llamina.tokenizer.bpe import cuts
from llamina.tokenizer.pretokenizers import PRETOKENIZERS, Pretokenizer, pretokenizer

# Names that every reader of GGUF knows: one of them is taken before others that cut the same.
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
# Names of cuts often leave out that letters may bear marks; where two differ in nothing else, this decides.
MARKED = "ภาษาไทย កាន់តែ हिन्दी நன்றி"


def byte_pairs(tokenizer: Mapping[str, Any], rust: RustTokenizer, rules: Mapping[str, Any], pre: str | None) -> Words:
    """A vocabulary of bytes and merges; `rules` are those of tokenizer_config.json, `pre` a name to use instead."""
    model = tokenizer["model"]
    merges = [" ".join(part.replace(" ", "Ġ") for part in pair) for pair in merge_pairs(model.get("merges", ()))]
    words = Words.of("gpt2", model["vocab"], merges=merges)
    if pre is not None and not pretokenizer(pre).byte_level:
        raise RequestError(f"{pre} is not for byte-level vocabularies: choose another", "pre")
    words.pre = pre or cut_name(rust, bool(model.get("ignore_merges")), rules.get("clean_up_tokenization_spaces"))
    return words


def cut_name(rust: RustTokenizer, ignore_merges: bool, clean_spaces: bool | None) -> str:
    """The name of the cuts that give the tokenizer's own tokens; among several, the one most alike."""
    own, theirs = rust.pre_tokenizer, _read(rust)
    found: dict[Pretokenizer, tuple[int, int, bool]] = {}
    for row in _rows():
        rust.pre_tokenizer = cuts(row)
        same = [(ids == a, spans == b) for (ids, spans), (a, b) in zip(_read(rust), theirs, strict=True)]
        found[row] = sum(ids for ids, _ in same[:-1]), sum(spans for _, spans in same[:-1]), same[-1][1]
    rust.pre_tokenizer = own
    best = max(found.values())
    if best[0] < len(SAMPLES):
        nearest = next(names[0] for row, names in _rows().items() if found[row] == best)
        raise UnsupportedModel(
            f"the tokenizer cuts text in a way that GGUF has no name for; nearest is {nearest}, which gives "
            f"{best[0]} of {len(SAMPLES)} samples the same tokens: choose it or another with --pre"
        )

    def fitness(name: str) -> tuple[int, ...]:
        row = PRETOKENIZERS[name]
        _, alike, marks = found[row]
        known = name in _KNOWN
        rules = row.ignore_merges == ignore_merges, row.default_bos, marks, row.clean_spaces == clean_spaces
        return alike, known, *rules, -_KNOWN.index(name) if known else 0

    return max((name for row, names in _rows().items() if found[row][0] == best[0] for name in names), key=fitness)


def _rows() -> dict[Pretokenizer, list[str]]:
    """Names by what they mean, of byte-level cuts."""
    found: dict[Pretokenizer, list[str]] = {}
    for name, row in PRETOKENIZERS.items():
        if row.byte_level:
            found.setdefault(row, []).append(name)
    return found


def _read(rust: RustTokenizer) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """What a tokenizer makes of the samples: ids, and where it cuts."""
    return [
        (
            rust.encode(text, add_special_tokens=False).ids,
            [span for _, span in rust.pre_tokenizer.pre_tokenize_str(text)],
        )
        for text in (*SAMPLES, MARKED)
    ]
