"""Fixtures: databases of both kinds, for tests of anything that is kept in one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest

from tuner.db import schema
from tuner.db.database import Database
from tuner.db.revisions import HEAD
from tuner.db.store import Store, database_at

KINDS = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    with postgres.cluster() as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuner.db"


@pytest.fixture(params=KINDS)
def nothing(request: pytest.FixtureRequest, path: Path) -> Database:
    """Return a database without tables; of SQLite there is no file."""
    return database_at(path if request.param == "sqlite" else request.getfixturevalue("cluster").empty())


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with today's tables, to be copied, since a migration takes longer than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "tuner.db"
    Store.upgrade(path)
    return path


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, migrated: Path, path: Path) -> Database:
    """Return a database with today's tables and only the row of its identity."""
    if request.param == "sqlite":
        return database_at(shutil.copy(migrated, path))
    cluster: postgres.Cluster = request.getfixturevalue("cluster")
    database = database_at(cluster.url)
    if {*cluster.columns()} != {*_columns()}:  # the first test, or the one before changed the tables
        Store.upgrade(cluster.empty())
        return database
    cluster.cleared(
        f"INSERT INTO alembic_version VALUES ('{HEAD}')",
        "INSERT INTO store VALUES ('a-b-c', '2026-11-28T00:00:00+00:00')",
    )
    return database


def _columns() -> Iterator[tuple[str, str]]:
    yield "alembic_version", "version_num"
    for table in schema.Base.metadata.sorted_tables:
        yield from ((table.name, column.name) for column in table.columns)


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    store = Store.open(database)
    yield store
    store.close()


@pytest.fixture
def sqlite_store(migrated: Path, path: Path) -> Iterator[Store]:
    """Yield a store in a file. A test module whose tests need no other states `store = sqlite_store`."""
    store = Store.open(shutil.copy(migrated, path))
    yield store
    store.close()
