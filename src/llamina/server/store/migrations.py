"""Databases of earlier versions are brought up to date when they are opened: a step per version, all or nothing."""

from collections.abc import Callable

import sqlalchemy as sa

from llamina.errors import RequestError
from llamina.server.store.tables import objects, schema

LOCK = 0x6C6C616D696E61  # of PostgreSQL's: servers that start together migrate one after the other
Step = Callable[[sa.Connection], None]


def _first(connection: sa.Connection) -> None:
    objects.create(connection)


STEPS: list[Step] = [_first]  # step i makes version i + 1 from version i


def migrate(connection: sa.Connection, steps: list[Step] = STEPS) -> int:
    """Run the steps that a database lacks; its version. Raises RequestError for one of a later version."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
    schema.create(connection, checkfirst=True)
    version = connection.execute(sa.select(schema.c.version)).scalar()
    if version is None:
        connection.execute(schema.insert().values(version=0))
        version = 0
    if version > len(steps):
        message = f"the database has version {version}, this llamina knows up to {len(steps)}: install a newer one"
        raise RequestError(message, "database")
    for step in steps[version:]:
        step(connection)
    connection.execute(schema.update().values(version=len(steps)))
    return len(steps)
