"""Compiles constraints of every kind for a vocabulary."""

import json
from collections import OrderedDict
from threading import Lock

import llguidance

from llamina.errors import InvalidGrammar
from llamina.grammar import gbnf, lark, lexemes
from llamina.grammar.constraint import Constraint, one_line
from llamina.grammar.expansion import check_size
from llamina.grammar.nodes import Node, Rules, characters, choice, sequence
from llamina.grammar.regular import straighten
from llamina.grammar.source import Source
from llamina.tokenizer import Tokenizer

CACHED = 64  # compiled constraints

# Limits of time and memory for compiling and for each mask (by llguidance's documentation a millisecond is about 50,000
# units of initial fuel, 14,000 of step fuel or 20,000 items, and a lexer state 2 KB).
LIMITS = llguidance.LLParserLimits(
    initial_lexer_fuel=5_000_000,
    step_lexer_fuel=400_000,
    step_max_items=100_000,
    max_lexer_states=50_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)

# As in llama.cpp: bounded, so that a model cannot emit whitespace for ever.
WHITESPACE = r"[ ]|\n[ \t]{0,20}"


class Compiler:
    """Compiles constraints and caches them. Preparing the vocabulary, once, takes about 0.2 seconds."""

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._vocabulary = _Vocabulary(tokenizer)
        ends = sorted(tokenizer.eog) or [tokenizer.vocab_size]
        self._prepared = llguidance.LLTokenizer(self._vocabulary, n_vocab=len(self._vocabulary.tokens), eos_token=ends)
        self._compiled: OrderedDict[Source, Constraint] = OrderedDict()
        self._lock = Lock()  # requests are prepared in threads of their own

    def constraint(self, source: Source) -> Constraint:
        """Return a constraint at the beginning of its grammar. Raises InvalidGrammar. Safe to call from any thread."""
        with self._lock:
            if source not in self._compiled:
                self._compiled[source] = self._compile(source)
                if len(self._compiled) > CACHED:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(source)
            return self._compiled[source].fresh()

    def _compile(self, source: Source) -> Constraint:
        matcher = llguidance.LLMatcher(self._prepared, self._grammar(source), log_level=0, limits=LIMITS)
        if matcher.is_error():
            message = one_line(matcher.get_error())
            if "coerce_one_of" in message:
                message += ' (in the schema: "x-guidance": {"coerce_one_of": true})'
            raise InvalidGrammar(f"{source.kind} cannot be followed: {message}", source.kind)
        return Constraint(matcher, len(self._vocabulary.tokens), self._vocab)

    def _grammar(self, source: Source) -> str:
        """Return the constraint in a language of llguidance."""
        match source.kind:
            case "grammar":
                return _from_lark(_lark(gbnf.parse(source.text, self._token)), source.kind)
            case "choices":
                return _from_lark(_lark({"root": choice(map(_literal, json.loads(source.text)))}), source.kind)
            case "json_schema":
                defaults = {"whitespace_pattern": WHITESPACE} if "x-guidance" not in json.loads(source.text) else {}
                return llguidance.LLMatcher.grammar_from_json_schema(source.text, defaults=defaults)  # type: ignore[arg-type]
            case "regex":
                return llguidance.LLMatcher.grammar_from_regex(source.text)
        return _from_lark(source.text, source.kind)

    def _token(self, text: str) -> int | None:
        """Return the token whose text this is; None if it is not a single token."""
        tokens = self._tokenizer.encode(text, parse_special=True, continued=True)
        return tokens[0] if len(tokens) == 1 else None


def _from_lark(text: str, kind: str) -> str:
    check_size(text, kind)
    return llguidance.LLMatcher.grammar_from_lark(text)


def _lark(rules: Rules) -> str:
    return lark.write(lexemes.cut(rules), straighten(rules))


def _literal(text: str) -> Node:
    return sequence(characters([(ord(c), ord(c))]) for c in text)


class _Vocabulary(llguidance.TokenizerWrapper):
    """A vocabulary in the form that llguidance takes: the bytes of each token, special ones after a byte 0xff."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        n = tokenizer.vocab_size
        self.special_token_ids = [token for token in range(n) if tokenizer.is_special(token)]
        special = set(self.special_token_ids)
        self.tokens = [
            b"\xff" * (token in special) + (tokenizer.token_bytes(token) or b"\xff[%d]" % token) for token in range(n)
        ]
        if not tokenizer.eog:  # an end-of-sequence token that no model has
            self.tokens.append(b"\xff<end>")
            self.special_token_ids.append(n)
        self.eos_token_id = tokenizer.eos if tokenizer.eos is not None else len(self.tokens) - 1
        self.bos_token_id = tokenizer.bos

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, continued=True)
