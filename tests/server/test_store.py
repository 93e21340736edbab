"""What the server keeps: the same on SQLite and on PostgreSQL."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from databases import postgres

from llamina.errors import RequestError
from llamina.server.store import Store
from llamina.server.store.migrations import STEPS, migrate
from llamina.server.store.store import made
from llamina.server.store.tables import objects, schema


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'made' / 'here.db'}"
    found: str = request.getfixturevalue("server")
    with sa.create_engine(found.replace("://", "+psycopg://")).begin() as connection:
        connection.execute(sa.text("drop table if exists objects, schema"))
    return found


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[Store]:
    store = Store(url, tmp_path)
    yield store
    store.close()


@pytest.fixture
def run() -> Callable[[Any], Any]:
    return asyncio.run


def test_objects_come_back_and_survive_a_restart(url: str, tmp_path: Path) -> None:
    body = {"text": "naïve \x00 \U0001f600", "list": [1, 2.5, None], "large": 2**62}
    first = Store(url, tmp_path)
    kept = asyncio.run(first.insert("response", "resp_1", body, owner="key_a", status="queued"))
    first.close()
    again = Store(url, tmp_path)
    assert asyncio.run(again.get("response", "resp_1", "key_a")) == kept
    assert kept.body == body and kept.status == "queued"
    again.close()


def test_an_owner_sees_only_its_own(store: Store) -> None:
    asyncio.run(store.insert("file", "file_1", {}, owner="key_a"))
    assert asyncio.run(store.get("file", "file_1", "key_b")) is None
    assert asyncio.run(store.get("thread", "file_1", "key_a")) is None
    assert not asyncio.run(store.delete("file", "file_1", "key_b"))
    page = asyncio.run(store.page("file", "key_b"))
    assert page is not None and page.items == []
    assert asyncio.run(store.get("file", "file_1")) is not None


def test_an_id_is_kept_once(store: Store) -> None:
    asyncio.run(store.insert("line", "batch_1:7", {"first": True}))
    with pytest.raises(sa.exc.IntegrityError):
        asyncio.run(store.insert_all([made("line", "batch_1:8", {}), made("line", "batch_1:7", {"first": False})]))
    assert asyncio.run(store.get("line", "batch_1:8")) is None, "all or none"
    kept = asyncio.run(store.get("line", "batch_1:7"))
    assert kept is not None and kept.body == {"first": True}


def test_pages(store: Store) -> None:
    asyncio.run(store.insert_all([made("message", f"m{i}", {}, parent="t") for i in range(7)]))

    def page(**options: Any) -> tuple[str, bool]:
        found = asyncio.run(store.page("message", parent="t", **options))
        assert found is not None
        return "".join(item.id[1] for item in found.items), found.more

    assert page(limit=3) == ("654", True)
    assert page(limit=3, order="asc") == ("012", True)
    assert page(limit=7) == ("6543210", False)
    assert page(limit=3, after="m4") == ("321", True)
    assert page(limit=3, after="m3") == ("210", False)
    assert page(limit=3, order="asc", after="m4") == ("56", False)
    assert page(limit=3, before="m2") == ("543", True)  # the ones right before it, in the order that is asked
    assert page(limit=3, order="asc", before="m4") == ("123", True)
    assert page(limit=3, after="m5", before="m1") == ("432", False)
    assert asyncio.run(store.page("message", parent="t", after="nobody")) is None
    assert [kept.id for kept in asyncio.run(store.all("message", parent="t"))] == [f"m{i}" for i in range(7)]


def test_a_change_from_a_state_happens_once(store: Store) -> None:
    asyncio.run(store.insert("batch", "b", {"n": 0}, status="queued"))
    claim = {"status": "running", "if_status": ("queued",)}
    assert asyncio.run(store.change("batch", "b", **claim))  # type: ignore[arg-type]
    assert not asyncio.run(store.change("batch", "b", **claim))  # type: ignore[arg-type]
    assert asyncio.run(store.change("batch", "b", body={"n": 1}))
    kept = asyncio.run(store.get("batch", "b"))
    assert kept is not None and (kept.status, kept.body) == ("running", {"n": 1})
    assert not asyncio.run(store.change("batch", "nobody", status="x"))


def test_what_is_deleted_takes_its_parts_along(store: Store) -> None:
    asyncio.run(store.insert("thread", "t", {}))
    asyncio.run(store.insert("run", "r", {}, parent="t"))
    asyncio.run(store.insert("step", "s", {}, parent="r"))
    asyncio.run(store.insert("run", "other", {}, parent="u"))
    assert asyncio.run(store.delete("thread", "t"))
    assert not asyncio.run(store.delete("thread", "t"))
    assert asyncio.run(store.get("run", "r")) is None and asyncio.run(store.get("step", "s")) is None
    assert asyncio.run(store.get("run", "other")) is not None


def test_migrations_run_once_and_whole(url: str, tmp_path: Path) -> None:
    Store(url, tmp_path).close()
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    ran = []

    def column(connection: sa.Connection) -> None:
        ran.append("column")
        connection.execute(sa.text("alter table objects add column note text"))

    def breaks(connection: sa.Connection) -> None:
        connection.execute(
            objects.insert().values(id="x", kind="x", owner="", parent="", status="", created=0, body="")
        )
        raise ZeroDivisionError

    for steps in ([*STEPS, column], [*STEPS, column]):
        with engine.begin() as connection:
            assert migrate(connection, steps) == 2
    assert ran == ["column"]
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:
        migrate(connection, [*STEPS, column, breaks])
    with engine.begin() as connection:
        assert connection.execute(sa.select(schema.c.version)).scalar() == 2
        assert connection.execute(sa.select(objects.c.id)).first() is None
    with pytest.raises(RequestError, match="version 2, this llamina knows up to 1"), engine.begin() as connection:
        migrate(connection)
    engine.dispose()


def test_a_database_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a database, and long enough to be seen as none" * 100)
    for url in (f"sqlite:///{tmp_path / 'file'}", "postgresql://nobody:secret@127.0.0.1:1/x", "oracle://x", "nonsense"):
        with pytest.raises(RequestError, match="cannot be opened") as raised:
            Store(url, tmp_path)
        assert "secret" not in str(raised.value)
