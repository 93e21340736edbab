"""The paged KV cache: pages of keys and values, and slots of recurrent states, leased to sequences.

Integers only, no arrays.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from llamina.cache.checkpoints import INTERVAL, Checkpoints, is_stop, next_stop
from llamina.cache.prefix import Node, Prefixes
from llamina.cache.window import WindowPool
from llamina.errors import CapacityError
from llamina.ops import Unit
from llamina.ops.batch import PAGE

Copies = dict[Unit, list[tuple[int, int]]]  # (source, target), in the order in which they are made


@dataclass(slots=True, eq=False)
class Lease:
    """What one sequence holds: its pages in order, and its slot."""

    slot: int
    scope: Hashable | None = None  # of the prefix tree; None: its pages are shared with nobody
    pages: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)  # of the tree, for the first of the pages
    found: int = 0  # tokens whose keys and values were there when it was admitted
    branch: int = 0  # tokens that the prefix tree had, whether or not their recurrent states were kept
    passing: Node | None = None  # a checkpoint that the next one replaces
    window_start: int = 0  # the first page inside the window of its sliding-window layers
    known: int = 0  # tokens when it was admitted


class Pages:
    """A pool of pages, each free, leased (perhaps by several), or kept in case its tokens come again.

    A page that anyone else refers to is copied before it is written (copy on write). Whoever owns the arrays makes the
    copies (`take_copies`) before anything is computed. Sliding-window layers have their keys and values in a pool of
    their own (`windows`), where a page loses its place when it has left the windows of all sequences.
    """

    def __init__(
        self,
        pages: int,
        slots: int,
        checkpoints: int | None = None,
        windows: WindowPool | None = None,
        *,
        sharing: bool = True,
    ) -> None:
        """With `checkpoints`, sequences have recurrent states; so many more slots keep states for later."""
        self.total = pages
        self._sharing = sharing
        self.recurrent = checkpoints is not None
        self.windows = windows or WindowPool()
        self._free = list(range(pages - 1, -1, -1))
        self._holders: dict[int, int] = {}  # leases of each leased page
        self._idle: dict[int, None] = {}  # pages that only the tree holds, those to forget first in front
        self._tree = Prefixes()
        self._slots = list(range(slots - 1, -1, -1))
        self._checkpoints = Checkpoints(range(slots, slots + (checkpoints or 0)))
        self._leases: dict[int, Lease] = {}  # by slot
        self._copies: Copies = {}

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

    def take_copies(self) -> Copies:
        """The copies that are to be made now; asking again returns none."""
        copies, self._copies = self._copies, {}
        return copies

    def _copy(self, unit: Unit, source: int, target: int) -> None:
        self._copies.setdefault(unit, []).append((source, target))

    def window_pages(self, lease: Lease) -> list[int]:
        """The window pages of the lease's last pages, which are inside the window."""
        return [self.windows[page] for page in lease.pages[lease.window_start :]]

    # ---- leases ------------------------------------------------------------------------------------------

    def admit(
        self, tokens: Sequence[int] = (), scope: Hashable | None = None, reuse: bool = True, promised: int = 0
    ) -> Lease | None:
        """A lease that begins with the longest cached prefix of `tokens` (`found` of them, never all).

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
        """With how many of these pages a sequence can begin: after them window and recurrent states must be there."""
        gap = usable = 0
        for n, node in enumerate(nodes, 1):
            if node.page not in self.windows:
                gap = n
            if gap <= self.windows.first(PAGE * n) and not (self.recurrent and node.slot is None):
                usable = n
        return usable

    def _seat(self, scope: Hashable | None, pages: list[int], nodes: list[Node], start: int | None = None) -> Lease:
        start = self.windows.first(PAGE * len(pages)) if start is None else start
        for page in pages[start:]:
            self.windows.hold(page)
        lease = Lease(self._slots.pop(), scope, pages, nodes, window_start=start)
        self._leases[lease.slot] = lease
        return lease

    def _find_rest(self, lease: Lease, tokens: Sequence[int]) -> None:
        """Copy the recurrent states at the prefix's end, or a page that begins with the same tokens as the next."""
        if self.recurrent and lease.nodes:
            self._copy("slot", self._checkpoints.use(lease.nodes[-1]), lease.slot)
        elif not self.recurrent and (best := self._tree.nearest(self._end(lease), tokens[lease.found : -1][:PAGE])):
            node, shared = best
            at = len(lease.pages)
            if at < lease.window_start or (node.page in self.windows and self.windows.free):
                lease.pages.append(self._take(at >= lease.window_start, like=node.page))
                lease.found += shared

    def _end(self, lease: Lease) -> Node:
        """The node of the lease's last page in the tree."""
        return lease.nodes[-1] if lease.nodes else self._tree.root(lease.scope)

    def extend(self, lease: Lease, start: int, stop: int) -> bool:
        """Lease pages to write tokens [start, stop); False, and nothing changed, if there are not enough."""
        self._check(lease)
        first = start // PAGE
        shared = first < len(lease.pages) and self._is_shared(lease.pages[first])
        wanted = max(0, -(-stop // PAGE) - len(lease.pages))
        self._leave(lease, start)
        seen = max(0, len(lease.pages) + wanted - max(len(lease.pages), lease.window_start))
        seen += shared and first >= lease.window_start
        if wanted + shared > self.free or seen > self.windows.free:
            return False
        if shared:
            self._copy_on_write(lease, first)
        for at in range(len(lease.pages), len(lease.pages) + wanted):
            lease.pages.append(self._take(at >= lease.window_start))
        return True

    def _copy_on_write(self, lease: Lease, at: int) -> None:
        del lease.nodes[at:]
        page, lease.pages[at] = lease.pages[at], self._take(at >= lease.window_start, like=lease.pages[at])
        self._give_back(lease, at, page)

    def fork(self, lease: Lease) -> Lease | None:
        """Another lease of the same pages, with a copy of the recurrent states; None while all slots are taken."""
        self._check(lease)
        if not self._slots:
            return None
        pages = [self._hold(page) for page in lease.pages]
        twin = self._seat(lease.scope, pages, list(lease.nodes), lease.window_start)
        if self.recurrent:
            self._copy("slot", lease.slot, twin.slot)
        return twin

    def rewind(self, lease: Lease, tokens: int) -> bool:
        """Drop all but the first `tokens` tokens; False, and nothing changed, if a page of their window was evicted.

        Recurrent states do not go back: restore them, or admit again.
        """
        self._check(lease)
        stop, start = -(-tokens // PAGE), min(lease.window_start, self.windows.first(tokens))
        again = lease.pages[start : min(lease.window_start, stop)]
        if any(page not in self.windows for page in again):
            return False
        del lease.nodes[tokens // PAGE :]
        while len(lease.pages) > stop:
            self._give_back(lease, len(lease.pages) - 1, lease.pages.pop())
        for page in again:
            self.windows.hold(page)
        lease.window_start = start
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

    # ---- the prefix cache ------------------------------------------------------------------------------------

    def stop(self, lease: Lease, start: int, stop: int, known: int) -> int:
        """Where to cut [start, stop) of `known` tokens, so that the recurrent states there can be kept."""
        return next_stop(start, stop, known, lease.branch) if self.recurrent and lease.scope is not None else stop

    def keep(self, lease: Lease, tokens: Sequence[int], computed: int) -> None:
        """Add the pages of the first `computed` tokens to the prefix tree, and keep the recurrent states after them."""
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
            if at >= lease.window_start:
                self._see_again(node.page, mine)
            self._give_back(lease, at, mine)
        lease.nodes.append(node)

    def _see_again(self, page: int, same: int) -> None:
        """Hold the window page of a page, copied from another page with the same tokens if it was evicted."""
        if page in self.windows:
            self.windows.hold(page)
        else:
            self.windows.take(page)
            self._copy("window", self.windows[same], self.windows[page])

    def _keep_state(self, lease: Lease, passing: bool) -> None:
        node = lease.nodes[-1]
        if node.slot is None and (slot := self._checkpoints.take(node, lease.passing)) is not None:
            self._copy("slot", lease.slot, slot)
            lease.passing = node if passing else None

    def forget(self) -> None:
        """Evict every page that no sequence holds."""
        while self._idle:
            self._free.append(self._evict())

    def _evict(self) -> int:
        """Evict the page that was idle for longest. Its node is a leaf: who holds a page holds those before it."""
        page = next(iter(self._idle))
        del self._idle[page]
        self._checkpoints.drop(self._tree.remove(page))
        self.windows.forget(page)
        return page

    def _leave(self, lease: Lease, tokens: int) -> None:
        """Release window pages that no later token attends to; those that others may begin with are evicted last."""
        first = self.windows.first(tokens)
        if first <= lease.window_start:
            return
        marks = (lease.branch - 1, lease.known - 1)
        for at in range(lease.window_start, min(first, len(lease.pages))):
            likely = any(self.windows.first(mark) <= at <= mark // PAGE for mark in marks)
            self.windows.drop(lease.pages[at], keep=lease.pages[at] in self._tree, first_to_go=not likely)
        lease.window_start = first

    # ---- pages -------------------------------------------------------------------------------------------

    def _take(self, windowed: bool, like: int | None = None) -> int:
        """A free page, copied from another (which may be evicted for it); with a window page if `windowed`."""
        source = self.windows[like] if windowed and like is not None else None
        page = self._free.pop() if self._free else self._evict()
        self._holders[page] = 1
        if windowed:
            self.windows.take(page)
        if like is not None:
            self._copy("page", like, page)
        if source is not None:
            self._copy("window", source, self.windows[page])
        return page

    def _hold(self, page: int) -> int:
        self._idle.pop(page, None)
        self._holders[page] = self._holders.get(page, 0) + 1
        return page

    def _give_back(self, lease: Lease, at: int, page: int) -> None:
        """Release the page that was the lease's at that place."""
        if at >= lease.window_start:
            self.windows.drop(page, keep=page in self._tree)
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
