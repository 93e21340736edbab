"""What a grammar takes, found out in two ways."""

from collections.abc import Sequence
from typing import Any

from llamina import Tokenizer
from llamina.errors import InvalidGrammar
from llamina.grammar import source
from llamina.grammar.compiler import Compiler
from llamina.grammar.nodes import Alt, Chars, Node, Ref, Repeat, Rules, Seq

Text = str | Sequence[str | dict[str, int]]  # tokens by number between the strings


def spell(tokenizer: Tokenizer, text: Text) -> list[int]:
    parts = [text] if isinstance(text, str) else text
    return [t for p in parts for t in (tokenizer.encode(p, continued=True) if isinstance(p, str) else [p["token"]])]


def takes(compiler: Compiler, tokenizer: Tokenizer, text: Text, **constraint: Any) -> bool:
    """Whether the tokens of the text can be said one after the other, and the answer end there."""
    found = source(**constraint)
    assert found is not None
    matcher = compiler.constraint(found)
    try:
        for token in spell(tokenizer, text):
            matcher.consume(token)
    except InvalidGrammar:
        return False
    return matcher.accepting


def matches(rules: Rules, text: str) -> bool:
    """By definition: where each rule can end if it begins here, worked out until nothing new turns up."""
    ends: dict[tuple[str, int], set[int]] = {("root", 0): set()}

    def after(node: Node, at: int) -> set[int]:
        match node:
            case Chars(ranges):
                return {at + 1} if at < len(text) and any(a <= ord(text[at]) <= b for a, b in ranges) else set()
            case Ref(name):
                return ends.setdefault((name, at), set())
            case Seq(items):
                places = {at}
                for item in items:
                    places = {end for place in places for end in after(item, place)}
                return places
            case Alt(items):
                return {end for item in items for end in after(item, at)}
            case Repeat(item, low, high):
                places, found = {at}, {at} if low == 0 else set()
                for n in range(1, min(high if high is not None else 99, low + len(text) + 1) + 1):
                    places = {end for place in places for end in after(item, place)}
                    found |= places if n >= low else set()
                return found
        raise TypeError(node)

    while True:
        before = (len(ends), sum(map(len, ends.values())))
        for name, at in list(ends):
            ends[name, at] = ends[name, at] | after(rules[name], at)
        if before == (len(ends), sum(map(len, ends.values()))):
            return len(text) in ends["root", 0]
