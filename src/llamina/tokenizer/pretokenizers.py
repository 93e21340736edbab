"""Pre-tokenization, how byte-pair vocabularies split text into words: `tokenizer.ggml.pre` → expressions and rules.

The expressions are data of the GGUF format: each one splits the pieces that the one before left. They are
written here for Oniguruma, which runs them, and split where llama.cpp splits. Hence three habits:

- llama.cpp matches some expressions on a text whose non-ASCII spaces are replaced, so a range of letters
  never covers a space: hence `&&\\S`.
- it knows one class of letters, so where a model's own expression tells upper from lower case (`\\p{Lu}`),
  only ASCII letters are told apart, or none.
- `\\d` is ASCII only: hence `[0-9]`.
"""

from dataclasses import dataclass

from llamina.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class Pretokenizer:
    """The expressions, and what else a `tokenizer.ggml.pre` name decides."""

    patterns: tuple[str, ...]
    byte_level: bool = True
    ignore_merges: bool = False
    clean_spaces: bool = True
    escape_spaces: bool = False
    add_bos: bool = False
    add_sep: bool = False
    default_bos: bool = True
    lowercase: bool = True


_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SYMBOLS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_CASED = (
    rf"{_LEAD}(?:(?=\p{{L}})[^a-z])*(?:(?=\p{{L}})[^A-Z])+",
    rf"{_LEAD}(?:(?=\p{{L}})[^a-z])+(?:(?=\p{{L}})[^A-Z])*",
)
_CASED_MARKS = (
    rf"{_LEAD}(?:(?=[\p{{L}}\p{{M}}])[^a-z])*(?:(?=[\p{{L}}\p{{M}}])[^A-Z])+",
    rf"{_LEAD}(?:(?=[\p{{L}}\p{{M}}])[^a-z])+(?:(?=[\p{{L}}\p{{M}}])[^A-Z])*",
)
_WORD_MARKS = rf"{_LEAD}[\p{{L}}\p{{M}}]+{_CONTRACTION}?"
_ASCII_PUNCTUATION = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_CJK = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}&&\S]+"
_HAN_KANA = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
_HAN = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B820}-\x{2CEAF}\x{2CEB0}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
# Groups of three digits counted from the right. What stands before the digits stays with their first group.
_DIGITS_FROM_RIGHT = r"\P{N}*+\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\P{N}++"
_LATIN = (
    r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}"
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}"
    r"\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}"
    r"\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}"
    r"\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}"
    r"\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}"
    r"\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}"
    r"\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}"
    r"\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}"
    r"\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}"
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}"
    r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}"
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}"
    r"\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+"
)
_ASIAN = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}"
    r"\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}"
    r"\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
)


def _any(*alternatives: str) -> str:
    return "|".join(alternatives)


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = _any(_CONTRACTION, _LETTERS, r"\p{N}{1,3}", _SYMBOLS, _SPACES)
_QWEN2 = _any(_CONTRACTION, _LETTERS, r"\p{N}", _SYMBOLS, _SPACES)
_QWEN35 = _any(_CONTRACTION, _LEAD + r"[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _SPACES)
_GPT4O = _any(*(word + _CONTRACTION + "?" for word in _CASED), r"\p{N}{1,3}", _SYMBOLS_SLASH, _SPACES)
_DEEPSEEK3 = _any(
    _ASCII_PUNCTUATION + "[A-Za-z]+",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+[\r\n]*",
    _SPACES,
)
_SPARK = _any(
    _ASCII_PUNCTUATION + "[A-Za-z]+",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+",
    r"[\r\n]|\s+(?!\S)|\s+",
)
_JAIS_SPACES = _any(
    r"\s*[\r\n]+",
    *(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)),
    r"\s{1,2}(?!\S)",
    r"\s{1}",
)
_YOUTU = (
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}"
    r"\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|["
    r"\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
)
# U+3000 is a space here, though the models count it among the punctuation.
_PUNCTUATION = r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}-\x{3002}]+"
_BLOOM = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+"
_LINES = r"[^\n]+|[\n]+"

_patterns: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "llama3": (_LLAMA3,),
    "jais2": (_any(_CONTRACTION, _LETTERS, r"\p{N}{1,3}", _SYMBOLS, _JAIS_SPACES),),
    "deepseek-llm": (r"[\r\n]", _LATIN, _PUNCTUATION, r"\s+\z", _CJK, r"\p{N}+"),
    "deepseek3": (r"\p{N}{1,3}", _HAN_KANA, _DEEPSEEK3),
    "spark": (r"\p{N}{1,3}", _HAN_KANA, _SPARK, r"\p{N}"),
    "youtu": (
        _YOUTU,
        _any(_WORD_MARKS, r"\p{N}", _SYMBOLS_SLASH, _SPACES),
    ),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}"),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "digits": (r"\p{N}", _GPT2),
    "gpt2": (_GPT2,),
    "qwen2": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "bloom": (_BLOOM,),
    "viking": (_BLOOM, r"\p{N}"),
    "tekken": (_any(*_CASED, r"\p{N}", _SYMBOLS_SLASH, _SPACES),),
    "chameleon": (
        "<sentinel:[0-9]+>",
        "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
        r"([\t\n]|    |  )",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        _GPT2,
    ),
    "gpt4o": (_GPT4O,),
    "granite-multi": (_any(*(w + _CONTRACTION + "?" for w in _CASED_MARKS), r"\p{N}{1,3}", _SYMBOLS_SLASH, _SPACES),),
    "tiny-aya": (_DIGITS_FROM_RIGHT, _any(_WORD_MARKS, r"\p{N}{1,3}", _SYMBOLS_SLASH, _SPACES)),
    "kimi": (
        _any(
            f"[{_HAN}]+",
            rf"{_LEAD}[\p{{L}}&&[^{_HAN}]]+{_CONTRACTION}?",
            r"\p{N}{1,3}",
            _SYMBOLS,
            _SPACES,
        ),
    ),
    "superbpe": (r"\p{N}+", "(?=([0-9]{3})+(?![0-9]))"),
    "bailing": (
        _any(
            "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])",
            _LETTERS,
            r"\p{N}",
            _SYMBOLS,
            r"\s*[\r\n]|\s+(?!\S)|\s+",
        ),
    ),
    "seed": (_any(_CONTRACTION, _LETTERS, r"\p{N}{1}", r" ?[^\s\p{L}\p{N}\r\n]+", _SPACES),),
    "ufakzeka": (_any(_LETTERS, r"\p{N}", _SYMBOLS, _SPACES),),
    "afmoe": (_DIGITS_FROM_RIGHT, _ASIAN, _DEEPSEEK3),
    "laguna": (_LINES, _QWEN2),
    "exaone-moe": (
        _any(
            _CONTRACTION,
            _LEAD + r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
            r"\p{N}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
            r"\s*[\r\n]|\s+(?!\S)|\s+",
        ),
    ),
    "lines": (_LINES,),
    "minicpm5": (r"\p{N}{1,3}", _any(_CONTRACTION, _LETTERS, r"\p{N}+", _SYMBOLS, _SPACES)),
    "whitespace": (r"\S+",),
}


def _rows(names: str, patterns: str, **rules: bool) -> dict[str, Pretokenizer]:
    row = Pretokenizer(_patterns[patterns], **rules)
    return dict.fromkeys(names.split(), row)


PRETOKENIZERS: dict[str, Pretokenizer] = {
    **_rows("default", "default"),
    **_rows("minicpm5", "minicpm5", ignore_merges=True),
    **_rows(
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        "llama3",
        ignore_merges=True,
        add_bos=True,
    ),
    **_rows("dbrx smaug-bpe", "llama3"),
    **_rows("jais-2", "jais2"),
    **_rows("deepseek-llm", "deepseek-llm", clean_spaces=False),
    **_rows("deepseek-coder", "deepseek-coder", clean_spaces=False),
    **_rows("deepseek-v3 hunyuan-dense hy_v4 joyai-llm", "deepseek3", clean_spaces=False),
    **_rows("spark2_5", "spark", clean_spaces=False),
    **_rows("youtu", "youtu", clean_spaces=False, ignore_merges=True),
    **_rows("falcon", "falcon"),
    **_rows("starcoder refact codeshell exaone minerva-7b mellum2", "digits"),
    **_rows("command-r smollm", "digits", clean_spaces=False),
    **_rows(
        "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt olmo jais exaone4",
        "gpt2",
    ),
    **_rows("jina-v1-en jina-v2-code roberta-bpe", "gpt2", add_sep=True),
    **_rows("trillion granite-docling", "gpt2", clean_spaces=False),
    **_rows("gemma4 granite-embed-multi-311m", "lines", byte_level=False, escape_spaces=True),
    **_rows("sarvam-moe", "lines", byte_level=False, escape_spaces=True, clean_spaces=False),
    **_rows("whitespace", "whitespace", byte_level=False, lowercase=False),
    **_rows("qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan grok-2 solar-open", "qwen2", clean_spaces=False),
    **_rows("stablelm2 megrez", "qwen2"),
    **_rows("qwen35", "qwen35", clean_spaces=False),
    **_rows("poro-chat", "bloom", clean_spaces=False),
    **_rows("bloom gpt3-finnish", "bloom"),
    **_rows("viking", "viking", clean_spaces=False),
    **_rows("chatglm-bpe", "llama3", default_bos=False),
    **_rows("glm4 glm5", "llama3", default_bos=False, ignore_merges=True),
    **_rows("tekken", "tekken", clean_spaces=False, ignore_merges=True, add_bos=True),
    **_rows("exaone-moe", "exaone-moe"),
    **_rows("chameleon", "chameleon", clean_spaces=False, add_bos=True),
    **_rows("gpt-4o llama4 kanana2 talkie minimax-m2", "gpt4o", clean_spaces=False),
    **_rows("granite-embed-multi-97m", "granite-multi", clean_spaces=False, ignore_merges=True),
    **_rows("tiny_aya cohere2moe", "tiny-aya", clean_spaces=False),
    **_rows("superbpe", "superbpe", clean_spaces=False),
    **_rows("bailingmoe bailingmoe2 llada-moe", "bailing", clean_spaces=False),
    **_rows("seed-coder", "seed", clean_spaces=False),
    **_rows("kimi-k2", "kimi", clean_spaces=False),
    **_rows("ufakzeka", "ufakzeka", clean_spaces=False),
    **_rows("afmoe", "afmoe", clean_spaces=False),
    **_rows("laguna", "laguna", clean_spaces=False),
}


def pretokenizer(name: str) -> Pretokenizer:
    """The row of a `tokenizer.ggml.pre` name; files older than the field mean `default`. Raises `UnsupportedModel`."""
    try:
        return PRETOKENIZERS[name or "default"]
    except KeyError:
        raise UnsupportedModel(
            f"tokenizer.ggml.pre is {name!r}, which llamina does not know: "
            "set it to the name of a pre-tokenizer that splits the same way (llama-bpe, qwen2, gpt-2, ...)"
        ) from None
