"""The tables of the database."""

import sqlalchemy as sa

metadata = sa.MetaData()

Position = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts only in a column of type INTEGER

objects = sa.Table(
    "objects",
    metadata,
    sa.Column("position", Position, primary_key=True, autoincrement=True),  # the order in which objects were made
    sa.Column("id", sa.String(128), nullable=False, unique=True),
    sa.Column("kind", sa.String(32), nullable=False),  # response, conversation, file, thread, batch, key, …
    sa.Column("owner", sa.String(64), nullable=False),  # the id of the key that made it; "" without keys
    sa.Column("parent", sa.String(128), nullable=False),  # the object that it is a part of, or ""
    sa.Column("status", sa.String(32), nullable=False),
    sa.Column("created", sa.BigInteger, nullable=False),  # seconds since 1970
    sa.Column("body", sa.Text, nullable=False),  # JSON
    sa.Index("objects_by_parent", "kind", "parent", "owner", "position"),
    sa.Index("objects_by_status", "kind", "status"),
    sa.Index("objects_by_part", "kind", "parent", "id", "status"),  # parts in order, and counted without their bodies
    sqlite_autoincrement=True,
)

schema = sa.Table("schema", metadata, sa.Column("version", sa.Integer, nullable=False))
