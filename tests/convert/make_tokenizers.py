"""Make tokenizers/: one small tokenizer of each kind, and what their own libraries read in samples of text.

python tests/convert/make_tokenizers.py     # needs sentencepiece and tokenizers; not part of the tests
"""

import io
import json
import shutil
from typing import Any

import sentencepiece
from convert_folders import TEXTS, TOKENIZERS
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = """The lamina is a thin layer, and the llama a thick-coated animal of the mountains. Layers upon layers of the
thinnest leaves make a stone that splits; herds upon herds of llamas make a path. In the morning the herder counts
them: one, two, three, 21, 305. She calls, and they answer in their own way. Grüße aus Köln. Привет мир. 日本語。"""
CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
SIZE = 288


def main() -> None:
    shutil.rmtree(TOKENIZERS, ignore_errors=True)
    bpe()
    wordpiece()
    spm("spm", "bpe")
    spm_as_json()
    spm("unigram", "unigram")


def bpe() -> None:
    """Bytes and merges, cut as Llama 3 does."""
    tokenizer = Tokenizer(models.BPE())
    steps: list[Any] = [pre_tokenizers.Split(Regex(CUT), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=SIZE - 4, initial_alphabet=alphabet))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>", "<|pad|>"])
    start = tokenizer.token_to_id("<|begin|>")
    tokenizer.post_processor = processors.TemplateProcessing("<|begin|> $A", special_tokens=[("<|begin|>", start)])
    keep("bpe", tokenizer, {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": {"content": "<|pad|>"}})
    (TOKENIZERS / "bpe" / "chat_template.jinja").write_text(TEMPLATE)


def wordpiece() -> None:
    """BERT's, in lower case."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator([TEXT], trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=marks))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], marks, strict=True))
    keep("wordpiece", tokenizer, {**names, "do_lower_case": True})


def keep(name: str, tokenizer: Tokenizer, rules: dict[str, Any]) -> None:
    folder = TOKENIZERS / name
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps(rules, indent=1) + "\n")


def spm(name: str, kind: str) -> None:
    """SentencePiece's own file, and the ids that its own library gives."""
    folder = TOKENIZERS / name
    folder.mkdir(parents=True)
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()),
        model_writer=made,
        model_type=kind,
        vocab_size=SIZE + 72 if kind == "bpe" else 90,
        byte_fallback=kind == "bpe",
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(made.getvalue())
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": True, "add_eos_token": False}) + "\n")
    processor = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    facts = {"ids": [processor.encode(sample) for sample in TEXTS]}
    (folder / "facts.json").write_text(json.dumps(facts) + "\n")


def spm_as_json() -> None:
    """The same vocabulary as `transformers` writes it: merges in the order of the scores of what they make."""
    processor = sentencepiece.SentencePieceProcessor(str(TOKENIZERS / "spm" / "tokenizer.model"))
    ids = {processor.id_to_piece(i): i for i in range(processor.vocab_size())}
    splits = [
        (processor.get_score(token), text[:cut], text[cut:])
        for text, token in ids.items()
        for cut in range(1, len(text))
        if text[:cut] in ids and text[cut:] in ids and not processor.is_control(token) and not processor.is_byte(token)
    ]
    merges = [(left, right) for _, left, right in sorted(splits, key=lambda split: -split[0])]
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    keep("spm-json", tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True})


if __name__ == "__main__":
    main()
