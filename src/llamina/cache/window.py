"""The KV memory of sliding-window layers, which is a pool of its own. Integers only, no arrays."""

from collections import OrderedDict

from llamina.ops.batch import PAGE

NEVER = 1 << 62


class WindowPool:
    """Window pages: where layers that see `reach` tokens back have the keys and values of the pages they can see.

    A page of a sequence has a window page while it is inside the window; after that it is kept until another page
    needs the room.
    """

    def __init__(self, pages: int = 0, reach: int = 0) -> None:
        self.total = pages
        self._reach = reach
        self._free = list(range(pages - 1, -1, -1))
        self._window_pages: dict[int, int] = {}  # by page
        self._holders: dict[int, int] = {}  # how many sequences see a page
        self._idle: OrderedDict[int, None] = OrderedDict()  # pages in nobody's window, those to evict first in front

    @property
    def free(self) -> int:
        """How many window pages are in nobody's window."""
        return self.total - len(self._holders)

    @property
    def kept(self) -> int:
        """How many of the free ones still hold the keys and values of a page."""
        return len(self._idle)

    def first(self, tokens: int) -> int:
        """The first page inside the window from the page boundary at or before `tokens`; huge without windows."""
        return max(0, tokens // PAGE * PAGE - self._reach + 1) // PAGE if self._reach else NEVER

    def __contains__(self, page: int) -> bool:
        return page in self._window_pages

    def __getitem__(self, page: int) -> int:
        """The window page of a page. Raises KeyError if it has none."""
        return self._window_pages[page]

    def take(self, page: int) -> None:
        """Give a page that has none a window page, held by one sequence; an idle one is evicted if none is free."""
        if not self._free:
            self.forget(next(iter(self._idle)))
        self._window_pages[page] = self._free.pop()
        self._holders[page] = 1

    def hold(self, page: int) -> None:
        """One more sequence has the page, which has a window page, inside its window."""
        self._idle.pop(page, None)
        self._holders[page] = self._holders.get(page, 0) + 1

    def drop(self, page: int, keep: bool, first_to_go: bool = False) -> None:
        """One sequence fewer has it inside its window; after the last one it is idle if `keep`, else free."""
        self._holders[page] -= 1
        if self._holders[page]:
            return
        del self._holders[page]
        self._idle[page] = None
        self._idle.move_to_end(page, last=not first_to_go)
        if not keep:
            self.forget(page)

    def forget(self, page: int) -> None:
        """Free the window page, if there is one, of a page in nobody's window."""
        if page in self._window_pages:
            del self._idle[page]
            self._free.append(self._window_pages.pop(page))
