"""Locations of databases, as users name them."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from tuner.db.database import Database
from tuner.db.postgresql import PostgreSQL
from tuner.db.sqlite import SQLite


def database_at(text: str | Path) -> Database:
    """Return the database at a path or URL.

    Raises:
        UsageError: It is a URL, and not one of PostgreSQL.
    """
    return PostgreSQL.at(text) if isinstance(text, str) and "://" in text else SQLite(Path(text))


def default_database() -> Database:
    """Return the database that `TUNER_DB` names, or else the file in the user's data folder."""
    given = os.environ.get("TUNER_DB")
    return database_at(given or platformdirs.user_data_path("triton-tuner") / "tuner.db")


def is_named() -> bool:
    """Return whether `TUNER_DB` names the default database."""
    return bool(os.environ.get("TUNER_DB"))
