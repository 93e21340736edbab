"""Constraints of every kind, made for a vocabulary."""

import json
from collections import OrderedDict
from threading import Lock

import llguidance

from llamina.errors import InvalidGrammar
from llamina.grammar import gbnf, lark, lexemes
from llamina.grammar.constraint import Constraint, one_line
from llamina.grammar.nodes import Node, Rules, characters, choice, sequence
from llamina.grammar.regular import straighten
from llamina.grammar.source import Source
from llamina.tokenizer import Tokenizer

KEPT = 64  # compiled constraints, in case they are asked for again

# Time and memory for compiling and for each mask (llguidance says: about 50 thousand units of the first fuel, 14 of the
# second and 20 of the items to a millisecond; 2 KB to a state).
LIMITS = llguidance.LLParserLimits(
    initial_lexer_fuel=5_000_000,
    step_lexer_fuel=400_000,
    step_max_items=100_000,
    max_lexer_states=50_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)

# As in llama.cpp: a model that begins with blanks must come to an end with them.
WHITESPACE = r"[ ]|\n[ \t]{0,20}"


class Compiler:
    """Makes constraints. The vocabulary is prepared once, which takes a moment."""

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._words = _Words(tokenizer)
        ends = sorted(tokenizer.eog) or [tokenizer.vocab_size]
        self._prepared = llguidance.LLTokenizer(self._words, n_vocab=len(self._words.tokens), eos_token=ends)
        self._compiled: OrderedDict[Source, Constraint] = OrderedDict()
        self._lock = Lock()  # the turns of an AsyncEngine are prepared beside its own thread

    def constraint(self, source: Source) -> Constraint:
        """Ready for the first token, or an error that says what is wrong. For any thread."""
        with self._lock:
            if source not in self._compiled:
                self._compiled[source] = self._compile(source)
                if len(self._compiled) > KEPT:
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
        return Constraint(matcher, len(self._words.tokens), self._vocab)

    def _grammar(self, source: Source) -> str:
        """The constraint in a language of llguidance."""
        match source.kind:
            case "grammar":
                rules = gbnf.parse(source.text, self._token)
                return llguidance.LLMatcher.grammar_from_lark(_lark(rules))
            case "choices":
                rules = {"root": choice(map(_literal, json.loads(source.text)))}
                return llguidance.LLMatcher.grammar_from_lark(_lark(rules))
            case "json_schema":
                blanks = {"whitespace_pattern": WHITESPACE} if "x-guidance" not in json.loads(source.text) else {}
                return llguidance.LLMatcher.grammar_from_json_schema(source.text, defaults=blanks)  # type: ignore[arg-type]
            case "regex":
                return llguidance.LLMatcher.grammar_from_regex(source.text)
        return llguidance.LLMatcher.grammar_from_lark(source.text)

    def _token(self, text: str) -> int | None:
        tokens = self._tokenizer.encode(text, parse_special=True, continued=True)
        return tokens[0] if len(tokens) == 1 else None


def _lark(rules: Rules) -> str:
    return lark.write(lexemes.cut(rules), straighten(rules))


def _literal(text: str) -> Node:
    return sequence(characters([(ord(c), ord(c))]) for c in text)


class _Words(llguidance.TokenizerWrapper):
    """A vocabulary as llguidance wants to see it: the bytes of each token, special ones marked."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        n = tokenizer.vocab_size
        self.special_token_ids = [token for token in range(n) if tokenizer.is_special(token)]
        special = set(self.special_token_ids)
        self.tokens = [
            b"\xff" * (token in special) + (tokenizer.token_bytes(token) or b"\xff[%d]" % token) for token in range(n)
        ]
        if not tokenizer.eog:  # an end that no model can say
            self.tokens.append(b"\xff<end>")
            self.special_token_ids.append(n)
        self.eos_token_id = tokenizer.eos if tokenizer.eos is not None else len(self.tokens) - 1
        self.bos_token_id = tokenizer.bos

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, continued=True)
