"""Pages of keys and values, and slots of recurrent states, leased to sequences. Integers only, no arrays."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from llamina.cache.checkpoints import INTERVAL, Checkpoints, is_stop, next_stop
from llamina.cache.near import Near
from llamina.cache.prefix import Node, Prefixes
from llamina.errors import CapacityError
from llamina.ops.batch import PAGE

Copy = tuple[Literal["page", "near", "slot"], int, int]  # from one to another


@dataclass(slots=True, eq=False)
class Lease:
    """The pages of one sequence in order, and its slot."""

    slot: int
    scope: Hashable | None = None  # of the prefix tree; None: what it computes stays its own
    pages: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)  # of the tree, for the first of the pages
    found: int = 0  # tokens that were computed before it was admitted
    branch: int = 0  # tokens that the tree knew, whether or not their recurrent states were kept
    passing: Node | None = None  # a checkpoint that the next one replaces
    near: int = 0  # the first page that its windowed layers see
    known: int = 0  # tokens when it was admitted


class Pages:
    """A pool of pages, each free, leased (perhaps by several), or kept in case its tokens come again.

    A leased page that anyone else refers to is never written: whoever wants to gets a copy. Copies are made in order
    by whoever owns the arrays (`take_copies`), before anything is computed. Layers with a window have memory of their
    own (`near`), which a page loses when it has left the windows of all.
    """

    def __init__(
        self, pages: int, slots: int, checkpoints: int | None = None, near: Near | None = None, *, sharing: bool = True
    ) -> None:
        """With `checkpoints`, sequences have recurrent states; so many more slots keep states for later."""
        self.total = pages
        self._sharing = sharing
        self.recurrent = checkpoints is not None
        self.near = near or Near()
        self._free = list(range(pages - 1, -1, -1))
        self._holders: dict[int, int] = {}  # leases of each leased page
        self._idle: dict[int, None] = {}  # pages that only the tree holds, those to forget first in front
        self._tree = Prefixes()
        self._slots = list(range(slots - 1, -1, -1))
        self._checkpoints = Checkpoints(range(slots, slots + (checkpoints or 0)))
        self._leases: dict[int, Lease] = {}  # by slot
        self._copies: list[Copy] = []

    @property
    def free(self) -> int:
        """Pages that no sequence holds; some of them may be kept until they are needed (`kept`)."""
        return self.total - len(self._holders)

    @property
    def kept(self) -> int:
        return len(self._idle)

    def holds(self, tokens: int) -> bool:
        """Whether a sequence of so many tokens would fit, had it all pages for itself."""
        return tokens <= self.total * PAGE

    def take_copies(self) -> list[Copy]:
        """What is to be copied now, in this order."""
        copies, self._copies = self._copies, []
        return copies

    def seen(self, lease: Lease) -> list[int]:
        """The places of the pages that windowed layers see: the last ones of the lease."""
        return [self.near[page] for page in lease.pages[lease.near :]]

    # ---- leases ------------------------------------------------------------------------------------------

    def admit(
        self, tokens: Sequence[int] = (), scope: Hashable | None = None, reuse: bool = True, promised: int = 0
    ) -> Lease | None:
        """A lease that begins with what is known of `tokens` (`found` of them, never all), or None.

        None while all slots are taken, or while there is no room for all tokens beside `promised` pages.
        """
        if not self._slots:
            return None
        scope = scope if self._sharing else None
        nodes = self._tree.walk(self._tree.root(scope), tokens[:-1]) if reuse and scope is not None else []
        branch = PAGE * len(nodes)
        nodes = nodes[: self._usable(nodes)]
        woken = sum(node.page in self._idle for node in nodes)
        if self.free - woken - promised < -(-len(tokens) // PAGE) - len(nodes):
            return None
        lease = self._seat(scope, [self._hold(node.page) for node in nodes], nodes)
        lease.found, lease.branch, lease.known = PAGE * len(nodes), branch, len(tokens)
        if reuse and scope is not None:
            self._find_rest(lease, tokens)
        return lease

    def _usable(self, nodes: Sequence[Node]) -> int:
        """With how many of these pages a sequence can begin: those after which everything is kept that layers need."""
        gap = usable = 0
        for n, node in enumerate(nodes, 1):
            if node.page not in self.near:
                gap = n
            if gap <= self.near.first(PAGE * n) and not (self.recurrent and node.slot is None):
                usable = n
        return usable

    def _seat(self, scope: Hashable | None, pages: list[int], nodes: list[Node], near: int | None = None) -> Lease:
        near = self.near.first(PAGE * len(pages)) if near is None else near
        for page in pages[near:]:
            self.near.hold(page)
        lease = Lease(self._slots.pop(), scope, pages, nodes, near=near)
        self._leases[lease.slot] = lease
        return lease

    def _find_rest(self, lease: Lease, tokens: Sequence[int]) -> None:
        """What is to be copied: recurrent states, or a page that begins as the next tokens do."""
        if self.recurrent and lease.nodes:
            self._copies.append(("slot", self._checkpoints.use(lease.nodes[-1]), lease.slot))
        elif not self.recurrent and (best := self._tree.nearest(self._end(lease), tokens[lease.found : -1][:PAGE])):
            node, shared = best
            at = len(lease.pages)
            if at < lease.near or (node.page in self.near and self.near.free):
                lease.pages.append(self._take(at >= lease.near, like=node.page))
                lease.found += shared

    def _end(self, lease: Lease) -> Node:
        """Where the tree goes on from the lease's pages."""
        return lease.nodes[-1] if lease.nodes else self._tree.root(lease.scope)

    def extend(self, lease: Lease, start: int, stop: int) -> bool:
        """Make room to write tokens [start, stop); False, and nothing changed, if the pool is exhausted."""
        self._check(lease)
        first = start // PAGE
        shared = first < len(lease.pages) and self._is_shared(lease.pages[first])
        wanted = max(0, -(-stop // PAGE) - len(lease.pages))
        self._leave(lease, start)
        seen = max(0, len(lease.pages) + wanted - max(len(lease.pages), lease.near)) + (shared and first >= lease.near)
        if wanted + shared > self.free or seen > self.near.free:
            return False
        if shared:
            self._copy_on_write(lease, first)
        for at in range(len(lease.pages), len(lease.pages) + wanted):
            lease.pages.append(self._take(at >= lease.near))
        return True

    def _copy_on_write(self, lease: Lease, at: int) -> None:
        del lease.nodes[at:]
        page, lease.pages[at] = lease.pages[at], self._take(at >= lease.near, like=lease.pages[at])
        self._give_back(lease, at, page)

    def fork(self, lease: Lease) -> Lease | None:
        """Another lease of the same pages, with a copy of the recurrent states; None while all slots are taken."""
        self._check(lease)
        if not self._slots:
            return None
        twin = self._seat(lease.scope, [self._hold(page) for page in lease.pages], list(lease.nodes), lease.near)
        if self.recurrent:
            self._copies.append(("slot", lease.slot, twin.slot))
        return twin

    def rewind(self, lease: Lease, tokens: int) -> bool:
        """Keep the first `tokens` tokens; False, and nothing changed, if windowed layers have forgotten those they see.

        Recurrent states do not go back: bring them back, or admit again.
        """
        self._check(lease)
        stop, near = -(-tokens // PAGE), min(lease.near, self.near.first(tokens))
        again = lease.pages[near : min(lease.near, stop)]
        if any(page not in self.near for page in again):
            return False
        del lease.nodes[tokens // PAGE :]
        while len(lease.pages) > stop:
            self._give_back(lease, len(lease.pages) - 1, lease.pages.pop())
        for page in again:
            self.near.hold(page)
        lease.near = near
        return True

    def release(self, lease: Lease) -> None:
        """Give everything back; the lease must not be used afterwards."""
        self._check(lease)
        while lease.pages:
            self._give_back(lease, len(lease.pages) - 1, lease.pages.pop())  # the last first: it is forgotten first
        lease.nodes.clear()
        self._slots.append(lease.slot)
        del self._leases[lease.slot]

    def _check(self, lease: Lease) -> None:
        if self._leases.get(lease.slot) is not lease:
            raise CapacityError(f"the lease of slot {lease.slot} was released before: admit a new one")

    # ---- what is kept ------------------------------------------------------------------------------------

    def stop(self, lease: Lease, start: int, stop: int, known: int) -> int:
        """Where [start, stop) of `known` tokens should end in one step, so that its recurrent states can be kept."""
        return next_stop(start, stop, known, lease.branch) if self.recurrent and lease.scope is not None else stop

    def keep(self, lease: Lease, tokens: Sequence[int], computed: int) -> None:
        """Remember the pages of the first `computed` tokens, and the recurrent states after them."""
        self._check(lease)
        if lease.scope is not None:
            for at in range(len(lease.nodes), computed // PAGE):
                self._keep_page(lease, at, tuple(tokens[PAGE * at : PAGE * at + PAGE]))
            if self.recurrent and lease.nodes and is_stop(computed, len(tokens), lease.branch):
                self._keep_state(lease, passing=computed == len(tokens) and computed % INTERVAL > 0)
        self._leave(lease, computed)

    def _keep_page(self, lease: Lease, at: int, tokens: tuple[int, ...]) -> None:
        parent = self._end(lease)
        node = parent.children.get(tokens) or self._tree.add(parent, tokens, lease.pages[at])
        if node.page != lease.pages[at]:  # somebody was faster; the contents are the same
            mine, lease.pages[at] = lease.pages[at], self._hold(node.page)
            if at >= lease.near:
                self._see_again(node.page, mine)
            self._give_back(lease, at, mine)
        lease.nodes.append(node)

    def _see_again(self, page: int, same: int) -> None:
        """Have a page near that may have been forgotten, from another with the same contents."""
        if page in self.near:
            self.near.hold(page)
        else:
            self.near.take(page)
            self._copies.append(("near", self.near[same], self.near[page]))

    def _keep_state(self, lease: Lease, passing: bool) -> None:
        node = lease.nodes[-1]
        if node.slot is None and (slot := self._checkpoints.take(node, lease.passing)) is not None:
            self._copies.append(("slot", lease.slot, slot))
            lease.passing = node if passing else None

    def forget(self) -> None:
        """Make every page free that no sequence holds."""
        while self._idle:
            self._free.append(self._evict())

    def _evict(self) -> int:
        """The page that was of no use for longest. Its node is a leaf: nobody holds a page and not those before it."""
        page = next(iter(self._idle))
        del self._idle[page]
        self._checkpoints.drop(self._tree.remove(page))
        self.near.forget(page)
        return page

    def _leave(self, lease: Lease, tokens: int) -> None:
        """What is out of sight after so many tokens: soon forgotten, unless others may begin where it is seen."""
        first, marks = self.near.first(tokens), (lease.branch - 1, lease.known - 1)
        for at in range(lease.near, min(first, len(lease.pages))):
            likely = any(self.near.first(mark) <= at <= mark // PAGE for mark in marks)
            self.near.drop(lease.pages[at], keep=lease.pages[at] in self._tree, first_to_go=not likely)
        lease.near = max(lease.near, first)

    # ---- pages -------------------------------------------------------------------------------------------

    def _take(self, near: bool, like: int | None = None) -> int:
        """A page, with the contents of another, which may be forgotten for its sake; if `near`, windows see it."""
        source = self.near[like] if near and like is not None else None
        page = self._free.pop() if self._free else self._evict()
        self._holders[page] = 1
        if near:
            self.near.take(page)
        if like is not None:
            self._copies.append(("page", like, page))
        if source is not None:
            self._copies.append(("near", source, self.near[page]))
        return page

    def _hold(self, page: int) -> int:
        self._idle.pop(page, None)
        self._holders[page] = self._holders.get(page, 0) + 1
        return page

    def _give_back(self, lease: Lease, at: int, page: int) -> None:
        """A page that was the lease's, at that place in it."""
        if at >= lease.near:
            self.near.drop(page, keep=page in self._tree)
        self._drop(page)

    def _drop(self, page: int) -> None:
        self._holders[page] -= 1
        if self._holders[page]:
            return
        del self._holders[page]
        if page in self._tree:
            self._idle[page] = None
        else:
            self._free.append(page)

    def _is_shared(self, page: int) -> bool:
        return self._holders[page] > 1 or page in self._tree
