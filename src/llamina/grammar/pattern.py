"""Regular expressions of others on text of others: matched in linear time. Python's own backtrack, some for ever."""

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported on first use: most programs have no patterns
    from llguidance import LLMatcher, LLTokenizer


def found_in(pattern: str, text: str) -> bool:
    """Whether a JSON schema's `pattern` is found in a text. One that is not regular (`(?=`, `\\1`) is found in any.

    Raises re.error for what is no regular expression.
    """
    re.compile(pattern)
    matcher = _matcher(pattern)
    if matcher is None:
        return True
    matcher = matcher.deep_copy()
    data = list(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


@lru_cache(64)
def _matcher(pattern: str) -> "LLMatcher | None":
    """A matcher of JSON strings, byte by byte; None for a pattern that llguidance does not have."""
    import llguidance

    limits = llguidance.LLParserLimits(
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        max_lexer_states=20_000,
        max_grammar_size=50_000,
        verbose_errors=False,
    )
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps({"type": "string", "pattern": pattern}))
    matcher = llguidance.LLMatcher(_bytes(), grammar, log_level=0, limits=limits)
    return None if matcher.is_error() else matcher


@lru_cache(1)
def _bytes() -> "LLTokenizer":
    """A vocabulary of single bytes."""
    import llguidance

    return llguidance.LLTokenizer("byte")
