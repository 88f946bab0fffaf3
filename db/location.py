"""Locations of databases, as users name them."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from tuner.db.database import Database
from tuner.db.postgresql import PostgreSQL
from tuner.db.sqlite import SQLite
from tuner.errors import UsageError


def database_at(text: str | Path) -> Database:
    """Return the database at a path or URL.

    Raises:
        UsageError: It is a URL, and not one of PostgreSQL.
    """
    return PostgreSQL.at(text) if isinstance(text, str) and "://" in text else SQLite(Path(text))


def default_database() -> Database:
    """Return the database that `TUNER_DB` names, or else the file in the user's data folder.

    Raises:
        UsageError: `TUNER_DB` is a URL, and not one of PostgreSQL.
    """
    given = os.environ.get("TUNER_DB")
    try:
        return database_at(given or platformdirs.user_data_path("triton-tuner") / "tuner.db")
    except UsageError as error:
        raise UsageError(f"TUNER_DB: {error}") from error


def is_named() -> bool:
    """Return whether `TUNER_DB` names the default database."""
    return bool(os.environ.get("TUNER_DB"))
