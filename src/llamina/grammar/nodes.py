"""Syntax trees of grammars: rules by name, made of characters, tokens and references."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)

Ranges = tuple[tuple[int, int], ...]  # of code points, both ends included, ascending and apart


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the vocabulary, or, negated, any other."""

    id: int
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a rule."""

    name: str


@dataclass(frozen=True, slots=True)
class Seq:
    """A sequence; empty text if it has no items."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Alternatives."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repetition, from `low` to `high` times; `high` None: without limit."""

    item: "Node"
    low: int
    high: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Lexeme:
    """A regular piece that the lexer matches as one. There is one object for each distinct piece."""

    node: "Node"
    number: int


Node = Chars | Token | Ref | Seq | Alt | Repeat | Lexeme
Rules = dict[str, Node]
EMPTY = Seq(())


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes that a node is made of."""
    match node:
        case Seq(items) | Alt(items):
            return items
        case Repeat(item):
            return (item,)
    return ()


def references(node: Node) -> Iterator[str]:
    """Yield the names of the rules that a node refers to."""
    if isinstance(node, Ref):
        yield node.name
    for child in children(node):
        yield from references(child)


def sequence(items: Iterable[Node]) -> Node:
    """Return a flat sequence; the item itself if there is one."""
    flat = [part for item in items for part in (item.items if isinstance(item, Seq) else (item,))]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def choice(items: Iterable[Node]) -> Node:
    """Return flat alternatives without duplicates; the item itself if there is one."""
    flat = [part for item in items for part in (item.items if isinstance(item, Alt) else (item,))]
    unique = tuple(dict.fromkeys(flat))
    return unique[0] if len(unique) == 1 else Alt(unique)


def characters(ranges: Iterable[tuple[int, int]], negated: bool = False) -> Chars:
    """Return a set of characters, or its complement, without surrogates."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted([*ranges, *([SURROGATES] if negated else [])]):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    if negated:
        edges = [-1, *(edge for pair in merged for edge in pair), MAX_CODE_POINT + 1]
        merged = [(low + 1, high - 1) for low, high in zip(edges[::2], edges[1::2], strict=True) if low + 1 < high]
        return Chars(tuple(merged))
    return Chars(tuple(part for pair in merged for part in _outside_surrogates(*pair)))


def _outside_surrogates(low: int, high: int) -> list[tuple[int, int]]:
    parts = [(low, min(high, SURROGATES[0] - 1)), (max(low, SURROGATES[1] + 1), high)]
    return [part for part in parts if part[0] <= part[1]]


ANY = characters([(0, MAX_CODE_POINT)])
