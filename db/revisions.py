"""The schema of a database: its revision, and how it is brought to today's."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from tuner.db import schema

_MIGRATIONS = Path(schema.__file__).parent / "migrations"
HEAD = max(file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*.py"))
"""Revision that this code writes: the newest migration. The name of a migration's file begins with its revision."""
OURS = frozenset({"alembic_version", "answers"})
"""Tables by which a database is known to be ours."""


def found(connection: Connection) -> str | None:
    """Return the revision of the database's schema, or None if it has no tables of ours."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return None if revision is None else str(revision)


def foreign(connection: Connection) -> bool:
    """Return whether the tables are those of another program."""
    tables = set(inspect(connection).get_table_names())
    return bool(tables) and not tables >= OURS


def lacking(connection: Connection) -> list[str]:
    """Return the tables and columns that this code reads and the database does not have: `answers.marks`."""
    inspector = inspect(connection)
    tables = set(inspector.get_table_names())
    missing = []
    for name, table in schema.Base.metadata.tables.items():
        columns = {column["name"] for column in inspector.get_columns(name)} if name in tables else set()
        missing += [f"{name}.{column.name}" for column in table.columns if column.name not in columns]
    return missing


def newer(revision: str | None) -> bool:
    """Return whether a later version of this code made the schema."""
    from alembic.script import ScriptDirectory

    return revision is not None and revision not in {
        script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()
    }


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the missing migrations, up to `revision`, inside the connection's transaction."""
    from alembic import command
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    settings.attributes["connection"] = connection
    command.upgrade(settings, revision)
