"""Finds the regular rules: those that contain no token and, after recursion is rewritten, no cycle."""

from llamina.grammar.nodes import (
    EMPTY,
    Alt,
    Node,
    Ref,
    Repeat,
    Rules,
    Seq,
    Token,
    children,
    choice,
    references,
    sequence,
)


def straighten(rules: Rules) -> Rules:
    """Return the rules with right or left recursion (only at the end, or only at the beginning) as repetitions."""
    return {name: _without_recursion(name, body) for name, body in rules.items()}


def _without_recursion(name: str, body: Node) -> Node:
    if name not in references(body):
        return body
    paths = [path.items if isinstance(path, Seq) else (path,) for path in _alternatives(body)]
    me = Ref(name)
    for at in (-1, 0):
        inner = [path[:-1] if at else path[1:] for path in paths if path and path[at] == me]
        other = [path for path in paths if not path or path[at] != me]
        if not other or any(name in references(Seq(path)) for path in (*inner, *other)):
            continue
        loop, end = Repeat(choice(map(sequence, inner)), 0, None), choice(map(sequence, other))
        return sequence([loop, end] if at else [end, loop])
    return body


def _alternatives(body: Node) -> tuple[Node, ...]:
    if isinstance(body, Alt):
        return tuple(part for item in body.items for part in _alternatives(item))
    if isinstance(body, Repeat) and (body.low, body.high) == (0, 1):
        return (*_alternatives(body.item), EMPTY)
    return (body,)


class Regular:
    """Whether a node is regular: made of characters alone, through all references."""

    def __init__(self, rules: Rules) -> None:
        self._names: dict[str, bool] = {}
        order = _bottom_up(rules)
        for name in order:
            self._names[name] = self(rules[name])  # a rule without a verdict is part of a cycle

    def __call__(self, node: Node) -> bool:
        if isinstance(node, Token):
            return False
        if isinstance(node, Ref):
            return self._names.get(node.name, False)
        return all(map(self, children(node)))


def _bottom_up(rules: Rules) -> list[str]:
    """Return the names of the rules that `root` needs, each after those it refers to (cycles apart)."""
    order: list[str] = []
    seen: set[str] = set()
    stack: list[tuple[str, bool]] = [("root", False)]
    while stack:
        name, done = stack.pop()
        if done:
            order.append(name)
        elif name not in seen:
            seen.add(name)
            stack.append((name, True))
            stack += [(ref, False) for ref in references(rules[name]) if ref not in seen]
    return order
