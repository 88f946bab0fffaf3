"""PostgreSQL alone: URLs, a server that restarts, a schema that only the upgrade command changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from time import monotonic

import postgres
import pytest
from sqlalchemy import text
from stored import HERE, NASTY, PROBLEM, SCALE, answered, change, measured, older, outside, rows, started

from tuner.db.database import Database
from tuner.db.postgresql import PostgreSQL
from tuner.db.revisions import HEAD
from tuner.db.store import Store, database_at, default_database
from tuner.errors import StoreError, UsageError

SECRET = "hunter2"


@pytest.fixture
def database(cluster: postgres.Cluster) -> Database:
    url = cluster.empty()
    Store.upgrade(url)
    return database_at(url)


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    store = Store.open(database)
    yield store
    store.close()


class TestUrls:
    @pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
    def test_a_url_names_a_database(self, scheme: str) -> None:
        found = database_at(f"{scheme}://me@db.example:5433/tuning")
        assert isinstance(found, PostgreSQL)
        assert str(found) == "postgresql://me@db.example:5433/tuning"

    def test_tuner_db_takes_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TUNER_DB", "postgresql://me@host/tuning")
        assert default_database() == database_at("postgresql://me@host/tuning")

    @pytest.mark.parametrize(
        "url",
        [
            f"postgresql://me:{SECRET}@127.0.0.1:1/tuning",
            f"postgresql://me@127.0.0.1:1/tuning?password={SECRET}",
            f"postgresql:///tuning?host=/nowhere&user=me&password={SECRET}&sslpassword={SECRET}",
            f"postgresql://me:{SECRET}@127.0.0.1:1/tuning?unheard_of=1",
        ],
    )
    def test_a_password_is_shown_nowhere(self, url: str) -> None:
        database = database_at(url)
        with pytest.raises(StoreError) as refused:
            Store.open(database)
        for shown in (str(database), repr(database), str(refused.value)):
            assert SECRET not in shown
        assert str(refused.value).startswith(f"the database {database} cannot be read: ")
        with pytest.raises(UsageError) as unsaved:
            database.back_up("file")
        assert SECRET not in str(unsaved.value)

    def test_a_password_may_be_in_a_file(self, cluster: postgres.Cluster, tmp_path: Path) -> None:
        file = tmp_path / "password"
        database = database_at(f"{cluster.empty()}&password_file={file}")
        with pytest.raises(StoreError, match=r"the password of the database .* cannot be read: .*No such file"):
            Store.open(database)
        file.write_text(f"{SECRET}\n")
        Store.upgrade(database)
        engine = database.engine(writes=False)
        assert engine.url.password == SECRET
        assert "password_file" not in engine.url.query
        assert SECRET not in str(database) + repr(database)

    @pytest.mark.parametrize(
        "url",
        [
            f"mysql://me:{SECRET}@host/tuning",
            f"postgresql+asyncpg://me:{SECRET}@host/tuning",
            f"postgresql://me:{SECRET}@host:port/tuning",
            f"postgresql://me:{SECRET}@host/tuning?port=no",
            f"://me:{SECRET}@host",
            f"sqlite:///{SECRET}",
        ],
    )
    def test_another_url_is_refused(self, url: str) -> None:
        with pytest.raises(UsageError) as refused:
            database_at(url)
        expected = "a database is the path of a file or postgresql://user@host/name, and this is another URL"
        assert str(refused.value) == expected

    def test_a_server_that_is_not_there_is_told_in_one_line(self) -> None:
        since = monotonic()
        with pytest.raises(StoreError) as refused:
            Store.open("postgresql://me@127.0.0.1:1/tuning", create=False)
        assert monotonic() - since < 5
        assert "Connection refused" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert refused.value.exit_code == 5

    def test_a_database_that_is_not_there_is_told(self, cluster: postgres.Cluster) -> None:
        url = cluster.url.replace("/postgres?", "/nowhere?")
        for create in (True, False):
            with pytest.raises(StoreError, match='database "nowhere" does not exist'):
                Store.open(url, create=create)

    def test_a_backup_is_left_to_postgresqls_own_tools(self) -> None:
        with pytest.raises(UsageError) as refused:
            database_at("postgresql://me@host/tuning").back_up("copy")
        assert str(refused.value) == (
            "a PostgreSQL database is backed up by its own tools: "
            "pg_dump --format=custom --file=copy 'postgresql://me@host/tuning'"
        )


@pytest.mark.parametrize("create", [True, False])
def test_only_upgrade_makes_the_tables(cluster: postgres.Cluster, create: bool) -> None:
    database = database_at(cluster.empty())
    with pytest.raises(StoreError) as refused:
        Store.open(database, create=create)
    assert str(refused.value) == (
        f"the database {database} has no tables yet, and this version needs {HEAD}; tuner db upgrade brings it there"
    )
    assert cluster.columns() == []


@pytest.mark.parametrize("create", [True, False])
def test_only_upgrade_changes_an_older_schema(database: Database, create: bool) -> None:
    older(database, "0001")
    with pytest.raises(StoreError, match=f"has schema 0001, and this version needs {HEAD}; tuner db upgrade "):
        Store.open(database, create=create)
    assert rows(database, "SELECT version_num FROM alembic_version") == [("0001",)]


def test_a_writer_waits_for_another(store: Store, database: Database) -> None:
    run = started(store)
    with outside(database).connect() as other:
        other.exec_driver_sql("LOCK TABLE trials IN SHARE MODE")
        release = Timer(0.5, other.commit)
        release.start()
        since = monotonic()
        store.add_trial(run, measured())
        assert monotonic() - since > 0.3
        release.join()
    assert store.known(SCALE, PROBLEM, HERE) == [measured()]


def test_a_transaction_of_one_statement_has_the_limits_of_a_writer(store: Store) -> None:
    for setting, value in (("lock_timeout", "10s"), ("transaction_isolation", "read committed")):
        assert store._put(text(f"SHOW {setting}")) == [(value,)]


def test_a_search_outlives_a_restart_of_the_server(store: Store, database: Database) -> None:
    run = started(store)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    uses: list[Callable[[], object]] = [
        lambda: store.add_trial(run, measured()),
        lambda: started(store),
        lambda: answered(store),
        lambda: store.known(SCALE, PROBLEM, HERE),
    ]
    for use in uses:
        assert (True,) in rows(database, f"{others} AND backend_type = 'client backend'")
        use()
    assert store.known(SCALE, PROBLEM, HERE) == [measured()]


def test_a_role_that_may_only_read_reads(store: Store, database: Database, cluster: postgres.Cluster) -> None:
    started(store)
    change(database, "DROP ROLE IF EXISTS looker")
    change(database, "CREATE ROLE looker LOGIN")
    change(database, "GRANT USAGE ON SCHEMA public TO looker")
    change(database, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker")
    looker = Store.open(cluster.url.replace("tuner@", "looker@"), create=False)
    assert len(looker.runs(5)) == 1
    with pytest.raises(StoreError, match="cannot be written: permission denied for table"):
        started(looker)
    looker.close()


def test_json_is_json_to_the_server_too(store: Store, database: Database) -> None:
    value = {"known": 0, "value": [float("inf"), float("-inf"), NASTY.replace("\x00", "")]}
    store.start_run(SCALE, PROBLEM, HERE, value)
    query = "SELECT settings->'value'->>0, settings->'value'->>1, settings->'value'->>2 FROM runs"
    assert rows(database, query) == [("1e999", "-1e999", value["value"][2])]  # type: ignore[index]
