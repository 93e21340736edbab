"""Tokenizers of Hugging Face and SentencePiece, on their way to GGUF's `tokenizer.*` keys."""
