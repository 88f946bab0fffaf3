"""Which schema a database has, and how it gets today's."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from tuner.db import schema

HEAD = "0004"
"""The schema this code writes: the newest migration."""
OURS = frozenset({"alembic_version", "answers"})
"""Tables by which a database is known to be ours."""


def found(connection: Connection) -> str | None:
    """The revision of the database's schema; None where it has no tables of ours."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return None if revision is None else str(revision)


def foreign(connection: Connection) -> bool:
    """Whether the tables are those of another program."""
    tables = set(inspect(connection).get_table_names())
    return bool(tables) and not tables >= OURS


def lacking(connection: Connection) -> list[str]:
    """What this code reads and the database does not have: tables and columns, `answers.marks`."""
    inspector = inspect(connection)
    tables = set(inspector.get_table_names())
    missing = []
    for name, table in schema.Base.metadata.tables.items():
        columns = {column["name"] for column in inspector.get_columns(name)} if name in tables else set()
        missing += [f"{name}.{column.name}" for column in table.columns if column.name not in columns]
    return missing


def newer(revision: str | None) -> bool:
    """Whether a later version of this code made it."""
    from alembic.script import ScriptDirectory

    return revision is not None and revision not in {
        script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()
    }


def upgrade(connection: Connection) -> None:
    """Runs the migrations that are missing, inside the connection's transaction."""
    from alembic import command
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")


_MIGRATIONS = Path(schema.__file__).parent / "migrations"
