"""Tokens known by their text: which end a generation, which fill in the middle, which are special after all.

Files often leave these roles unsaid, or say them wrong. The tables and their exceptions follow llama.cpp.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from llamina.tokenizer.vocabulary import Mark, Vocabulary

ROLE_TEXTS: dict[str, tuple[str, ...]] = {
    "eot": (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}

END_TEXTS = (
    *ROLE_TEXTS["eot"],
    *ROLE_TEXTS["eom"],
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
)

# gpt-oss (harmony) writes these as part of its answer, so they are text.
_HARMONY_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


def assign_roles(vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> frozenset[int]:
    """Complete the vocabulary's special tokens and attributes, and return the tokens that end a generation (EOG)."""
    _find_roles(vocabulary)
    _mark_unused(vocabulary)
    ends = _ends(vocabulary)
    for text in _HARMONY_TEXTS:
        if text in vocabulary.ids:
            vocabulary.marks[vocabulary.ids[text]] = Mark.USER_DEFINED
    _except_harmony_end(vocabulary, ends)
    _except_plain_s(vocabulary, ends)
    _mark_strips(vocabulary, metadata)
    return frozenset(ends)


def _find_roles(vocabulary: Vocabulary) -> None:
    for role, texts in ROLE_TEXTS.items():
        if role in vocabulary.special:
            continue
        token = next((vocabulary.ids[text] for text in texts if text in vocabulary.ids), None)
        if token is not None:
            vocabulary.special[role] = token
            vocabulary.marks[token] |= Mark.CONTROL


def _mark_unused(vocabulary: Vocabulary) -> None:
    for token in vocabulary.with_mark(Mark.CONTROL):
        if "unused" in vocabulary.texts[token]:
            vocabulary.marks[token] |= Mark.UNUSED


def _ends(vocabulary: Vocabulary) -> set[int]:
    by_text = {vocabulary.ids[text] for text in END_TEXTS if text in vocabulary.ids}
    for token in by_text:
        vocabulary.marks[token] |= Mark.CONTROL
    roles = ("fim_pad", "fim_rep", "fim_sep", "eos", "eot", "eom")
    return by_text | {vocabulary.special[role] for role in roles if role in vocabulary.special}


def _except_harmony_end(vocabulary: Vocabulary, ends: set[int]) -> None:
    """Where `<|call|>` ends a turn, `<|end|>` only ends one message of it."""
    texts = {vocabulary.texts[token]: token for token in ends}
    calls = "<|call|>" in texts or "<|calls|>" in texts
    if calls and "<|end|>" in texts and ("<|return|>" in texts or "<|flush|>" in texts):
        ends.discard(texts["<|end|>"])
        vocabulary.marks[texts["<|end|>"]] = Mark.USER_DEFINED


def _except_plain_s(vocabulary: Vocabulary, ends: set[int]) -> None:
    """For Gemma 4 and PLaMo, `</s>` is a tag of HTML."""
    texts = {vocabulary.texts[token]: token for token in ends}
    if "</s>" in texts and ("<|tool_response>" in texts or "<|plamo:eos|>" in texts):
        ends.discard(texts["</s>"])
        vocabulary.marks[texts["</s>"]] = Mark.NORMAL


def _mark_strips(vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> None:
    """Which special tokens swallow the spaces beside them: GGUF does not say, the model's name does."""
    pre = str(metadata.get("tokenizer.ggml.pre", ""))
    architecture = str(metadata.get("general.architecture", ""))
    name = str(metadata.get("general.name", "")).lower()
    if any(p in pre for p in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or any(
        a in architecture for a in ("nomic-bert-moe", "jina-bert-v3")
    ):
        _add_mark(vocabulary, "<mask>", Mark.LSTRIP)
    elif "phi-3" in name or "phi3" in name:
        special = Mark.CONTROL | Mark.USER_DEFINED | Mark.UNKNOWN
        vocabulary.marks[(vocabulary.marks & special) != 0] |= np.uint16(Mark.RSTRIP)
        _add_mark(vocabulary, "</s>", Mark.RSTRIP)
        for text in ("<unk>", "<s>", "<|endoftext|>"):
            if text in vocabulary.ids:
                vocabulary.marks[vocabulary.ids[text]] &= ~int(Mark.RSTRIP) & 0xFFFF
    elif "modern-bert" in name:
        _add_mark(vocabulary, "[MASK]", Mark.LSTRIP)


def _add_mark(vocabulary: Vocabulary, text: str, mark: Mark) -> None:
    if text in vocabulary.ids:
        vocabulary.marks[vocabulary.ids[text]] |= mark
