"""A database behind asyncio: each piece of work is one transaction, in a thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from llamina.errors import RequestError
from llamina.server.store.migrations import migrate

T = TypeVar("T")
CONNECTIONS = 8  # of a database that is a server; SQLite gets one thread, so that nobody waits for its lock
HIDDEN = True  # parameters of a statement are what clients sent: errors, which are logged, do not quote them
PATIENCE = 30.0  # seconds that a transaction waits for another process's


class Database:
    """`run` executes a function of a connection in a transaction. Opened and migrated by the constructor."""

    def __init__(self, url: str) -> None:
        """Raises RequestError for a database that cannot be reached, or has no driver here."""
        self.url = url
        try:
            self._engine = _engine(url)
            with self._engine.begin() as connection:
                migrate(connection)
        except (sa.exc.SQLAlchemyError, ImportError) as error:
            shown = sa.engine.make_url(url).render_as_string() if "://" in url else url
            message = f"the database {shown} cannot be opened: {error}"
            raise RequestError(message, "database") from error
        threads = 1 if self._engine.dialect.name == "sqlite" else CONNECTIONS
        self._threads = ThreadPoolExecutor(threads, "llamina-store")

    async def run(self, work: Callable[[sa.Connection], T]) -> T:
        """What `work` returns; its changes are on disk then, or none of them if it raises."""

        def transaction() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._threads, transaction)

    def insert(self, table: sa.Table) -> Any:
        """The database's own INSERT, which has `on_conflict_do_nothing`."""
        return (sqlite if self._engine.dialect.name == "sqlite" else postgresql).insert(table)

    def close(self) -> None:
        self._threads.shutdown()
        self._engine.dispose()


def _engine(url: str) -> sa.Engine:
    if url.startswith(("postgresql://", "postgres://")):
        url = "postgresql+psycopg://" + url.partition("://")[2]
    made = sa.engine.make_url(url)
    if made.get_backend_name() != "sqlite":
        return sa.create_engine(made, pool_size=CONNECTIONS, pool_pre_ping=True, hide_parameters=HIDDEN)
    if made.database:
        Path(made.database).parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"check_same_thread": False, "timeout": PATIENCE}
    engine = sa.create_engine(made, connect_args=options, poolclass=sa.pool.StaticPool, hide_parameters=HIDDEN)
    sa.event.listen(engine, "connect", _prepare)
    # Python's driver begins no transaction before DDL, and SQLite refuses to make a reader a writer when others wrote
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _prepare(connection: Any, _: Any) -> None:
    """SQLite: readers beside a writer, and a commit that a power cut does not undo."""
    connection.isolation_level = None  # transactions begin and end as SQLAlchemy says
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
