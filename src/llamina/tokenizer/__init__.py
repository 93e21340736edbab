"""GGUF vocabularies: text ⇄ tokens, streaming text, chat templates."""

from llamina.tokenizer.named_templates import template_source
from llamina.tokenizer.stream import Detokenizer
from llamina.tokenizer.template import ChatTemplate
from llamina.tokenizer.tokenizer import Tokenizer, vocabulary_of, with_template

__all__ = ["ChatTemplate", "Detokenizer", "Tokenizer", "template_source", "vocabulary_of", "with_template"]
