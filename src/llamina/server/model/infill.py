"""Prompts to fill in the middle (FIM), in the order in which models are trained on them, as llama.cpp writes them."""

from collections.abc import Mapping, Sequence

from llamina.errors import UnsupportedModel
from llamina.tokenizer import Tokenizer

SNIPPET = "\n\n--- snippet ---\n\n"  # before another file's text, for models without a token that separates files
NEEDED = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}


def infill(
    tokenizer: Tokenizer,
    prefix: str | list[int],
    suffix: str,
    prompt: str = "",
    extra: Sequence[Mapping[str, str]] = (),
) -> list[int]:
    """Other files, prefix, suffix, and the beginning of the middle.

    Raises UnsupportedModel for a model without FIM tokens.
    """
    special = tokenizer.special
    if missing := [name for role, name in NEEDED.items() if role not in special]:
        lacks = ", ".join(missing)
        raise UnsupportedModel(f"the model cannot fill in text: it has no token for {lacks}: use a model for code")
    before = list(prefix) if not isinstance(prefix, str) else tokenizer.encode(prefix)
    bos = [special["bos"]] if tokenizer.add_bos else []
    middle = [*before, *tokenizer.encode(prompt, parse_special=True)]
    after = tokenizer.encode(suffix)
    parts = [special["fim_pre"], *middle, special["fim_suf"], *after, special["fim_mid"]]
    return [*_context(tokenizer, extra), *bos, *parts]


def _context(tokenizer: Tokenizer, extra: Sequence[Mapping[str, str]]) -> list[int]:
    """The repository's other files, by name where the model has tokens for that."""
    special = tokenizer.special
    separator = special.get("fim_sep")
    tokens = [special["fim_rep"], *tokenizer.encode("myproject\n")] if "fim_rep" in special else []
    for chunk in extra:
        named = tokenizer.encode(chunk.get("filename", "tmp") + "\n")
        tokens += [separator, *named] if separator is not None else tokenizer.encode(SNIPPET)
        tokens += tokenizer.encode(chunk["text"])
    return tokens + ([separator, *tokenizer.encode("filename\n")] if separator is not None else [])
