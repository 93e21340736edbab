"""A grammar as an object: made once, given to any number of requests, and asked what it accepts."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from llamina.errors import InvalidGrammar
from llamina.grammar.source import Kind, Source, source
from llamina.tokenizer import Tokenizer
from llamina.tokenizer.vocabulary import Mark

if TYPE_CHECKING:
    from llamina.grammar.compiler import Compiler
    from llamina.grammar.constraint import Constraint

END = 256  # the token after all bytes
NAMED = Mark.CONTROL | Mark.USER_DEFINED | Mark.UNKNOWN  # tokens that a grammar may name


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must be. `engine.generate(prompt, grammar=Grammar.regex(r"\\d+"))`.

    Engines compile it for their vocabulary when they first see it, and remember that. Equal grammars are equal objects.
    """

    source: Source

    @classmethod
    def gbnf(cls, text: str) -> "Grammar":
        """By llama.cpp's GBNF, whose first rule is `root`. Raises InvalidGrammar."""
        return cls._of(grammar=text)

    @classmethod
    def json_schema(cls, schema: str | Mapping[str, Any] | bool = True) -> "Grammar":
        """JSON that fits a schema; True: any JSON object. Raises InvalidGrammar."""
        return cls._of(json_schema=schema)

    @classmethod
    def regex(cls, pattern: str) -> "Grammar":
        """A text that a regular expression matches as a whole. Raises InvalidGrammar."""
        return cls._of(regex=pattern)

    @classmethod
    def choices(cls, texts: Sequence[str]) -> "Grammar":
        """One of some texts. Raises InvalidGrammar."""
        return cls._of(choices=texts)

    @classmethod
    def lark(cls, text: str) -> "Grammar":
        """By llguidance's dialect of Lark, whose first rule is `start`. Raises InvalidGrammar."""
        return cls._of(lark=text)

    @classmethod
    def _of(cls, **given: Any) -> "Grammar":
        found = source(**given)
        if found is None:
            raise InvalidGrammar(f"{next(iter(given))} is None: give a grammar", next(iter(given)))
        return cls(found)

    @property
    def kind(self) -> Kind:
        """The language it is written in, which is also the option of a request that takes its text."""
        return self.source.kind

    @property
    def value(self) -> Any:
        """What a request's option of that kind takes."""
        return json.loads(self.source.text) if self.kind == "choices" else self.source.text

    def accepts(self, text: str, tokenizer: Tokenizer | None = None) -> bool:
        """Whether a text is a whole answer. Raises InvalidGrammar if the grammar cannot be compiled.

        A grammar that names tokens, such as `<think>`, needs the model's tokenizer; others have no use for one.
        """
        return any(state.accepting for state in self._follow(text, tokenizer))

    def begins(self, text: str, tokenizer: Tokenizer | None = None) -> bool:
        """Whether an answer can begin with a text; otherwise as `accepts`."""
        return any(True for _ in self._follow(text, tokenizer))

    def _follow(self, text: str, tokenizer: Tokenizer | None) -> "Iterator[Constraint]":
        """The states after a text: as characters, and with the tokens that it names."""
        vocabulary, compiler = _vocabulary(tokenizer)
        for special in (False, True) if tokenizer is not None else (False,):
            state = compiler.constraint(self.source)
            if all(state.accept(token) for token in vocabulary.encode(text, special)):
                yield state


class Bytes:
    """A vocabulary of the 256 bytes, an end, and the tokens of a model that stand for no text, for a compiler."""

    eos = END
    bos = None
    eog = frozenset({END})

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        marked = tokenizer.vocabulary.with_mark(NAMED) if tokenizer is not None else ()
        texts = dict.fromkeys(tokenizer.token_text(token) for token in marked) if tokenizer is not None else {}
        self._named = {text: token for token, text in enumerate(filter(None, texts), END + 1)}
        longest_first = sorted(map(re.escape, self._named), key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(longest_first)})") if longest_first else None
        self._texts = [*(bytes([byte]) for byte in range(END)), b"<end>", *(text.encode() for text in self._named)]

    @property
    def vocab_size(self) -> int:
        return len(self._texts)

    def is_special(self, token: int) -> bool:
        return token >= END

    def token_bytes(self, token: int) -> bytes:
        return self._texts[token]

    def encode(self, text: str, parse_special: bool = False, *, continued: bool = False) -> list[int]:
        """The bytes of a text, and the tokens that it names if these are looked for."""
        if not parse_special or self._pattern is None:
            return list(text.encode())
        parts = self._pattern.split(text)  # every second one is a name
        return [token for i, part in enumerate(parts) for token in ([self._named[part]] if i % 2 else part.encode())]


@lru_cache(1)
def _vocabulary(tokenizer: Tokenizer | None) -> "tuple[Bytes, Compiler]":
    """What grammars are tried with; the last tokenizer's is remembered."""
    from llamina.grammar.compiler import Compiler  # which imports llguidance

    found = Bytes(tokenizer)
    return found, Compiler(cast(Tokenizer, found), found.vocab_size)
