"""Objects by kind and id: made, read, listed in pages, changed, deleted. One way for every API that keeps something."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from llamina.server.store.contents import Contents
from llamina.server.store.database import Database
from llamina.server.store.tables import objects

ANY = "*"  # an owner or a parent that stands for all of them: for work of the server's own
Order = Literal["asc", "desc"]


@dataclass(frozen=True)
class Kept:
    """An object as it lies in the database."""

    id: str
    kind: str
    owner: str
    parent: str
    status: str
    created: int
    body: Any  # of JSON


@dataclass(frozen=True)
class Page:
    """Some objects of a list, and whether there are more."""

    items: list[Kept]
    more: bool


class _Undone(Exception):
    """Ends a transaction without a change."""


class Store:
    """`url` names the database; `folder` is where contents of files lie."""

    def __init__(self, url: str, folder: Path) -> None:
        """Raises RequestError if the database cannot be opened."""
        self.database = Database(url)
        self.folder = folder
        self.contents = Contents(folder / "files")

    async def insert(self, kind: str, id: str, body: dict[str, Any], **fields: Any) -> Kept:
        """Keep a new object; `fields` are owner, parent, status. Raises sqlalchemy's IntegrityError for an id twice."""
        return (await self.insert_all([made(kind, id, body, **fields)]))[0]

    async def insert_all(self, new: list[Kept]) -> list[Kept]:
        """Keep several, in order: all or none."""
        if new:
            await self.database.run(lambda connection: connection.execute(objects.insert(), _rows(new)))
        return new

    async def insert_once(self, new: list[Kept]) -> None:
        """Keep those whose ids are not there yet; the others stay as they are."""
        insert = self.database.insert(objects).on_conflict_do_nothing(index_elements=["id"])
        if new:
            await self.database.run(lambda connection: connection.execute(insert, _rows(new)))

    async def write(self, new: list[Kept], changed: list[Kept], if_status: tuple[str, ...] | None = None) -> bool:
        """Keep new objects, and the body and status of changed ones: all or none. Whether that happened.

        `if_status`: only if every changed object is in one of these states before.
        """

        def work(connection: sa.Connection) -> None:
            for one in changed:
                where = [*_of(one.kind, ANY), _is(one.id)]
                if if_status is not None:
                    where.append(objects.c.status.in_(if_status))
                change = objects.update().where(*where).values(status=one.status, body=_encode(one.body))
                if not connection.execute(change).rowcount:
                    raise _Undone
            if new:
                connection.execute(objects.insert(), _rows(new))

        try:
            await self.database.run(work)
        except _Undone:
            return False
        return True

    async def get(self, kind: str, id: str, owner: str = ANY) -> Kept | None:
        """The object, if there is one that this owner may see."""
        query = sa.select(objects).where(*_of(kind, owner), _is(id))
        row = await self.database.run(lambda connection: connection.execute(query).first())
        return _kept(row) if row is not None else None

    async def change(
        self,
        kind: str,
        id: str,
        *,
        body: dict[str, Any] | None = None,
        status: str | None = None,
        if_status: tuple[str, ...] | None = None,
        also: Sequence[Kept] = (),
        drop: str | None = None,
    ) -> bool:
        """Replace the body, the status or both; whether that happened. `if_status`: only from one of these states.

        `also` are new objects that are kept with the change, and `drop` names a kind of parts that are deleted with it:
        all of it happens, or nothing.
        """
        new: dict[str, Any] = {} if status is None else {"status": status}
        if body is not None:
            new["body"] = _encode(body)
        where = [*_of(kind, ANY), _is(id)]
        if if_status is not None:
            where.append(objects.c.status.in_(if_status))
        change = objects.update().where(*where).values(**new)

        def work(connection: sa.Connection) -> bool:
            happened = connection.execute(change).rowcount > 0
            if happened and also:
                connection.execute(objects.insert(), _rows(also))
            if happened and drop is not None:
                connection.execute(objects.delete().where(objects.c.kind == drop, objects.c.parent == id))
            return happened

        return await self.database.run(work)

    async def delete(self, kind: str, id: str, owner: str = ANY) -> bool:
        """Delete an object and the parts it has; whether it was there."""

        def work(connection: sa.Connection) -> bool:
            gone = connection.execute(objects.delete().where(*_of(kind, owner), _is(id))).rowcount > 0
            parents = [id] if gone else []
            while parents:
                parts = sa.select(objects.c.id).where(objects.c.parent.in_(parents))
                below = list(connection.execute(parts).scalars())
                connection.execute(objects.delete().where(objects.c.parent.in_(parents)))
                parents = below
            return gone

        return await self.database.run(work)

    async def page(
        self,
        kind: str,
        owner: str = ANY,
        *,
        parent: str = "",
        status: tuple[str, ...] | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page | None:
        """Objects in the order they were made; `after` and `before` are ids. None: no object has such an id."""

        def work(connection: sa.Connection) -> Page | None:
            where = [*_of(kind, owner), objects.c.parent == parent]
            if status is not None:
                where.append(objects.c.status.in_(status))
            position = objects.c.position
            for id, later in ((after, order == "asc"), (before, order == "desc")):
                if id is None:
                    continue
                known = sa.select(position).where(*_of(kind, owner), _is(id))
                at = connection.execute(known).scalar()
                if at is None:
                    return None
                where.append(position > at if later else position < at)
            # the page that ends right before `before` is taken from its end
            ascending = (order == "asc") != (before is not None and after is None)
            query = sa.select(objects).where(*where).limit(limit + 1)
            query = query.order_by(position.asc() if ascending else position.desc())
            rows = list(connection.execute(query))
            items = [_kept(row) for row in rows[:limit]]
            return Page(items if ascending == (order == "asc") else items[::-1], len(rows) > limit)

        return await self.database.run(work)

    async def all(self, kind: str, *, parent: str = "", status: tuple[str, ...] | None = None) -> list[Kept]:
        """Every object of a kind under a parent (`ANY`: under any), the oldest first."""
        where = _of(kind, ANY) if parent == ANY else [*_of(kind, ANY), objects.c.parent == parent]
        if status is not None:
            where.append(objects.c.status.in_(status))
        query = sa.select(objects).where(*where).order_by(objects.c.position)
        rows = await self.database.run(lambda connection: list(connection.execute(query)))
        return [_kept(row) for row in rows]

    async def each(
        self, kind: str, *, parent: str = "", status: tuple[str, ...] | None = None, size: int = 64
    ) -> AsyncIterator[Kept]:
        """The same in the order of their ids, of which only so many are held at a time."""
        where = [*_of(kind, ANY), objects.c.parent == parent]
        if status is not None:
            where.append(objects.c.status.in_(status))
        query, rows = sa.select(objects).where(*where).order_by(objects.c.id).limit(size), list[Any]()
        while True:
            part = query.where(objects.c.id > rows[-1].id) if rows else query
            rows = await self.database.run(lambda connection, part=part: list(connection.execute(part)))  # type: ignore[misc]
            for row in rows:
                yield _kept(row)
            if len(rows) < size:
                return

    async def ids(self, kind: str, *, parent: str = "") -> list[str]:
        """The ids of all of them."""
        query = sa.select(objects.c.id).where(*_of(kind, ANY), objects.c.parent == parent)
        return await self.database.run(lambda connection: list(connection.execute(query).scalars()))

    async def counts(self, kind: str, *, parent: str = "") -> dict[str, int]:
        """How many there are in each state."""
        where = [*_of(kind, ANY), objects.c.parent == parent]
        query = sa.select(objects.c.status, sa.func.count()).where(*where).group_by(objects.c.status)
        rows = await self.database.run(lambda connection: list(connection.execute(query)))
        return {row[0]: row[1] for row in rows}

    def close(self) -> None:
        self.database.close()


def made(kind: str, id: str, body: Any, owner: str = "", parent: str = "", status: str = "") -> Kept:
    """An object of now."""
    return Kept(id, kind, owner, parent, status, int(time.time()), body)


def _of(kind: str, owner: str) -> list[Any]:
    where = [objects.c.kind == kind]
    return where if owner == ANY else [*where, objects.c.owner == owner]


def _is(id: str) -> Any:
    """Whether an object has this id. None has a NUL in it, which PostgreSQL would not even compare."""
    return objects.c.id == id.replace("\0", "\ufffd")


def _kept(row: Any) -> Kept:
    return Kept(row.id, row.kind, row.owner, row.parent, row.status, row.created, msgspec.json.decode(row.body))


def _rows(new: Sequence[Kept]) -> list[dict[str, Any]]:
    return [vars(one) | {"body": _encode(one.body)} for one in new]


def _encode(body: dict[str, Any]) -> str:
    return msgspec.json.encode(body).decode()
