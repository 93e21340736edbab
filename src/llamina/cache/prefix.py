"""The prefix cache: a radix tree over tokens, with the page and perhaps the recurrent state computed for each node."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from llamina.ops.batch import PAGE

Key = tuple[Hashable, ...]  # the tokens of a page; of a root, its scope


@dataclass(slots=True, eq=False)
class Node:
    """A page of tokens that follows those of its parents. A root has no page."""

    tokens: Key = ()
    page: int = -1
    parent: "Node | None" = None
    children: dict[Key, "Node"] = field(default_factory=dict)
    slot: int | None = None  # recurrent states as they are after the page's last token


class Prefixes:
    """Full pages by their tokens, under the root of a scope; scopes share nothing."""

    def __init__(self) -> None:
        self._top = Node()
        self._by_page: dict[int, Node] = {}

    def __contains__(self, page: int) -> bool:
        return page in self._by_page

    def root(self, scope: Hashable) -> Node:
        """The node before a scope's first token; it becomes part of the tree when something is added to it."""
        return self._top.children.get((scope,)) or Node((scope,), parent=self._top)

    def walk(self, node: Node, tokens: Sequence[int]) -> list[Node]:
        """The nodes below `node` that `tokens` begin with, one after the other."""
        found: list[Node] = []
        for start in range(0, len(tokens) - PAGE + 1, PAGE):
            child = node.children.get(tuple(tokens[start : start + PAGE]))
            if child is None:
                break
            found.append(node := child)
        return found

    def nearest(self, node: Node, tokens: Sequence[int]) -> tuple[Node, int] | None:
        """The child that shares the most first tokens with `tokens`, and how many."""
        child = max(node.children.values(), key=lambda c: _common(c.tokens, tokens), default=None)
        shared = _common(child.tokens, tokens) if child else 0
        return (child, shared) if child and shared else None

    def add(self, parent: Node, tokens: Key, page: int) -> Node:
        """The new node of a page that follows `parent`."""
        if parent.parent is self._top:
            self._top.children[parent.tokens] = parent
        node = parent.children[tokens] = self._by_page[page] = Node(tokens, page, parent)
        return node

    def remove(self, page: int) -> Node:
        """Remove the node of a page that no other follows, and its scope if it was the last; returns the node."""
        node = self._by_page.pop(page)
        parent = node.parent
        assert parent is not None and not node.children
        del parent.children[node.tokens]
        if parent.parent is self._top and not parent.children:
            del self._top.children[parent.tokens]
        return node


def _common(a: Key, b: Sequence[int]) -> int:
    """How many first elements are the same."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
