"""The memory that windowed layers have of pages. Integers only, no arrays."""

from collections import OrderedDict

from llamina.ops.batch import PAGE

NEVER = 1 << 62


class Near:
    """Places for the keys and values of layers that see `reach` tokens back, of pages that are near enough to be seen.

    A page has a place while a sequence holds it that can see it; after that until another page needs the room.
    """

    def __init__(self, places: int = 0, reach: int = 0) -> None:
        self.total = places
        self._reach = reach
        self._free = list(range(places - 1, -1, -1))
        self._places: dict[int, int] = {}  # by page
        self._holders: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # pages that nobody sees, those to forget first in front

    @property
    def free(self) -> int:
        """Places of no page that a sequence sees."""
        return self.total - len(self._holders)

    @property
    def kept(self) -> int:
        return len(self._idle)

    def first(self, tokens: int) -> int:
        """The first page that is seen from the page boundary at or before `tokens`; without windows, none is."""
        return max(0, tokens // PAGE * PAGE - self._reach + 1) // PAGE if self._reach else NEVER

    def __contains__(self, page: int) -> bool:
        return page in self._places

    def __getitem__(self, page: int) -> int:
        return self._places[page]

    def take(self, page: int) -> None:
        """A place for a page that has none, held once."""
        if not self._free:
            self.forget(next(iter(self._idle)))
        self._places[page] = self._free.pop()
        self._holders[page] = 1

    def hold(self, page: int) -> None:
        """One more sequence sees a page that has a place."""
        self._idle.pop(page, None)
        self._holders[page] = self._holders.get(page, 0) + 1

    def drop(self, page: int, keep: bool, first_to_go: bool = False) -> None:
        """One sequence less sees it; after the last one it is kept, or not."""
        self._holders[page] -= 1
        if self._holders[page]:
            return
        del self._holders[page]
        self._idle[page] = None
        self._idle.move_to_end(page, last=not first_to_go)
        if not keep:
            self.forget(page)

    def forget(self, page: int) -> None:
        """Take the place of a page, if it has one, that nobody sees."""
        if page in self._places:
            del self._idle[page]
            self._free.append(self._places.pop(page))
