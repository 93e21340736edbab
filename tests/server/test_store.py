"""What the server keeps: the same on SQLite and on PostgreSQL."""

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from databases import postgres
from live_server import serving, wait_for

from llamina.engine import load
from llamina.errors import RequestError
from llamina.server.config import Config
from llamina.server.store import Store
from llamina.server.store.migrations import STEPS, migrate
from llamina.server.store.store import ANY, made
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
    engine = sa.create_engine(found.replace("://", "+psycopg://"))
    with engine.begin() as connection:
        connection.execute(sa.text("drop table if exists objects, schema"))
    engine.dispose()
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
    assert asyncio.run(store.get("file", "file_1\0")) is None
    assert asyncio.run(store.get("file", "file_1")) is not None


def test_an_id_is_kept_once(store: Store) -> None:
    asyncio.run(store.insert("line", "batch_1:7", {"first": True}))
    with pytest.raises(sa.exc.IntegrityError) as caught:
        asyncio.run(store.insert_all([made("line", "batch_1:8", {}), made("line", "batch_1:7", {"first": "secret"})]))
    assert "secret" not in str(caught.value), "what clients send is not logged"
    assert asyncio.run(store.get("line", "batch_1:8")) is None, "all or none"
    kept = asyncio.run(store.get("line", "batch_1:7"))
    assert kept is not None and kept.body == {"first": True}


def test_new_and_changed_objects_are_written_together(store: Store) -> None:
    run, step = made("run", "r", {"n": 0}, status="queued"), made("step", "s", {}, parent="r", status="open")
    asyncio.run(store.insert("run", "r", {"n": 0}, status="queued"))
    begun = dataclasses.replace(run, body={"n": 1}, status="working")
    assert not asyncio.run(store.write([step], [begun], ("waiting",)))
    assert asyncio.run(store.get("step", "s")) is None, "all or none"
    assert asyncio.run(store.write([step], [begun], ("queued", "waiting")))
    kept = asyncio.run(store.get("run", "r"))
    assert kept is not None and (kept.body, kept.status) == ({"n": 1}, "working")
    assert [one.id for one in asyncio.run(store.all("step", parent=ANY))] == ["s"]
    assert not asyncio.run(store.write([], [made("run", "nobody", {})]))


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


def test_a_migration_that_breaks_leaves_no_table(url: str, tmp_path: Path) -> None:
    store = Store(url, tmp_path)

    def breaks(connection: sa.Connection) -> None:
        connection.execute(sa.text("alter table objects add column note text"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(store.database.run(lambda connection: migrate(connection, [*STEPS, breaks])))
    look = sa.text("select note from objects")
    with pytest.raises(sa.exc.DatabaseError):
        asyncio.run(store.database.run(lambda connection: connection.execute(look).all()))
    store.close()


def test_servers_that_start_together_make_the_tables_once(url: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        stores = list(threads.map(lambda _: Store(url, tmp_path), range(8)))
    for at, store in enumerate(stores):
        asyncio.run(store.insert("file", f"file_{at}", {}))
    assert len(asyncio.run(stores[0].all("file"))) == 8
    for store in stores:
        store.close()


def test_a_line_is_kept_once_beside_new_ones(store: Store) -> None:
    first = made("line", "b:1", {"answer": 1}, parent="b", status="completed")
    asyncio.run(store.insert_once([first]))
    again = [made("line", f"b:{i}", {"answer": 2}, parent="b", status="failed") for i in (2, 1)]
    asyncio.run(store.insert_once(again))
    kept = asyncio.run(store.get("line", "b:1"))
    assert kept == first
    assert asyncio.run(store.counts("line", parent="b")) == {"completed": 1, "failed": 1}
    assert sorted(asyncio.run(store.ids("line", parent="b"))) == ["b:1", "b:2"]


def test_parts_are_read_in_order_and_go_with_a_change(store: Store) -> None:
    asyncio.run(store.insert("batch", "b", {}, status="finalizing"))
    asyncio.run(store.insert_all([made("line", f"b:{i:03d}", {"i": i}, parent="b") for i in reversed(range(10))]))
    asyncio.run(store.insert("line", "c:000", {}, parent="c"))

    async def read(size: int) -> list[int]:
        return [kept.body["i"] async for kept in store.each("line", parent="b", size=size)]

    for size in (3, 5, 64):
        assert asyncio.run(read(size)) == list(range(10))
    assert not asyncio.run(store.change("batch", "b", status="x", if_status=("validating",), drop="line"))
    assert len(asyncio.run(store.ids("line", parent="b"))) == 10
    assert asyncio.run(store.change("batch", "b", status="completed", if_status=("finalizing",), drop="line"))
    assert asyncio.run(store.ids("line", parent="b")) == [] and asyncio.run(store.get("line", "c:000")) is not None


def test_a_batch_on_either_database(url: str, tmp_path: Path, golden: Callable[[str], Path]) -> None:
    """The whole way of a batch, with a restart in the middle of it."""
    config = Config(data=str(tmp_path), database=url, batch_concurrency=4)
    line = {"method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 20, "seed": 1}}
    lines = "".join(json.dumps({"custom_id": str(i), **line}) + "\n" for i in range(80))
    body = {"input_jsonl": lines, "endpoint": "/v1/completions"}
    with serving({"stories": load(golden("stories260K.gguf"))}, config) as live:
        url = f"/v1/batch_jobs/{live.post('/v1/batch_jobs', body).json()['id']}"
        first = live.url + url
        assert wait_for(lambda: httpx.get(first).json()["request_counts"]["completed"] > 5)
    with serving({"stories": load(golden("stories260K.gguf"))}, config) as live:
        second = live.url + url
        assert wait_for(lambda: httpx.get(second).json()["status"] == "completed")
        assert httpx.get(second).json()["request_counts"] == {"total": 80, "completed": 80, "failed": 0}
        output = httpx.get(f"{second}/output").text.splitlines()
        assert [json.loads(line)["custom_id"] for line in output] == [str(i) for i in range(80)]


def test_a_database_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a database, and long enough to be seen as none" * 100)
    for url in (f"sqlite:///{tmp_path / 'file'}", "postgresql://nobody:secret@127.0.0.1:1/x", "oracle://x", "nonsense"):
        with pytest.raises(RequestError, match="cannot be opened") as raised:
            Store(url, tmp_path)
        assert "secret" not in str(raised.value)


def test_a_change_and_what_comes_with_it_are_one(store: Store) -> None:
    asyncio.run(store.insert("response", "r1", {}, status="queued"))
    items = [made("item", "c:1", {}, parent="c"), made("item", "c:2", {}, parent="c")]
    change = store.change("response", "r1", status="completed", if_status=("queued",), also=items)
    assert asyncio.run(change) and len(asyncio.run(store.ids("item", parent="c"))) == 2
    again = [made("item", "c:3", {}, parent="c")]
    assert not asyncio.run(store.change("response", "r1", status="failed", if_status=("queued",), also=again))
    with pytest.raises(sa.exc.IntegrityError):
        asyncio.run(store.change("response", "r1", status="failed", also=items))
    kept = asyncio.run(store.get("response", "r1"))
    assert kept is not None and kept.status == "completed" and len(asyncio.run(store.ids("item", parent="c"))) == 2
