"""A PostgreSQL server for the tests, in a temporary folder and reached by a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "autovacuum": "off",
}


class Cluster:
    """A running server with one database, which each test finds empty, since making many is slow."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.url = f"postgresql://tuner@/postgres?host={socket}"
        self._engine = create_engine(self.url.replace("://", "+psycopg://"), poolclass=NullPool)

    def empty(self) -> str:
        """Remove all tables, and return the URL of the database."""
        self._run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        return self.url

    def cleared(self, *statements: str) -> None:
        """Remove all rows and run the statements; the tables stay."""
        tables = "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables WHERE schemaname = 'public'"
        self._run(f"TRUNCATE {self._run(tables)} RESTART IDENTITY", *statements)

    def columns(self) -> list[tuple[str, str]]:
        """Return table and column of each column."""
        query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        with self._engine.connect() as connection:
            return [(table, column) for table, column in connection.exec_driver_sql(query)]

    def _run(self, *statements: str) -> Any:
        """Run the statements, and return the first value of the last."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql("SET lock_timeout = '5s'")
            results = [connection.exec_driver_sql(statement) for statement in statements]
            return results[-1].scalar() if results[-1].returns_rows else None


def binaries() -> Path | None:
    """Return the folder of initdb and pg_ctl: Debian's newest version, or else that of the search path."""
    debians = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: float(file.parts[-3]))
    found = str(debians[-1]) if debians else shutil.which("initdb")
    return None if found is None else Path(found).parent


@contextmanager
def cluster(under: str = "/tmp", **settings: str) -> Iterator[Cluster]:
    """Yield a running server. Skip, or fail if `TUNER_REQUIRE_POSTGRES=1`, if PostgreSQL is not installed.

    Args:
        under: Folder in which its own is made. It is short, since the path of a socket has at most 107 bytes.
        settings: Settings of the server, in place of those of the tests.
    """
    found = binaries()
    if found is None:
        message = "PostgreSQL is not installed here: neither /usr/lib/postgresql/*/bin/initdb nor initdb on PATH"
        if os.environ.get("TUNER_REQUIRE_POSTGRES") == "1":
            pytest.fail(message)
        pytest.skip(message)
    folder = Path(tempfile.mkdtemp(prefix="tuner-pg-", dir=under))
    try:
        runs_as = _owner()
        if runs_as is not None:
            os.chown(folder, runs_as.pw_uid, runs_as.pw_gid)
            folder.chmod(0o755)

        def run(*command: str | Path) -> None:
            with (folder / "log").open("a") as log:  # no pipe, which the server would hold open
                done = subprocess.run(
                    [found / command[0], *command[1:]],
                    cwd=folder,
                    env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
                    user=None if runs_as is None else runs_as.pw_uid,
                    group=None if runs_as is None else runs_as.pw_gid,
                    extra_groups=None if runs_as is None else [],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            assert done.returncode == 0, (folder / "log").read_text()

        data = folder / "data"
        run("initdb", "--no-sync", "--auth=trust", "--username=tuner", "--encoding=UTF8", "--locale=C.UTF-8", data)
        options = " ".join(f"-c {name}={value!r}" for name, value in (_SETTINGS | settings).items())
        run("pg_ctl", "start", "-w", "-D", data, "-l", folder / "server.log", "-o", f"{options} -k {folder}")
        try:
            yield Cluster(folder)
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", data)
    finally:
        shutil.rmtree(folder)


@contextmanager
def pooled(behind: Cluster) -> Iterator[str]:
    """Yield the URL of the database through pgbouncer in transaction mode, with two connections to the server.

    Skip if it is not installed.
    """
    found = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip("pgbouncer is not installed here, neither on PATH nor in /usr/sbin")
    folder = Path(tempfile.mkdtemp(prefix="tuner-pool-", dir="/tmp"))
    runs_as = _owner()
    settings = {
        "listen_addr": "",
        "unix_socket_dir": folder,
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": 2,
        "max_client_conn": 100,
    }
    lines = ["[databases]", f"postgres = host={behind.socket} user=tuner", "[pgbouncer]"]
    lines += [f"{name} = {value}" for name, value in settings.items()]
    (folder / "pgbouncer.ini").write_text("\n".join(lines))
    if runs_as is not None:
        os.chown(folder, runs_as.pw_uid, runs_as.pw_gid)
    folder.chmod(0o755)
    ids: dict[str, Any] = (
        {} if runs_as is None else {"user": runs_as.pw_uid, "group": runs_as.pw_gid, "extra_groups": []}
    )
    with (folder / "log").open("w") as log:
        pooler = subprocess.Popen([found, folder / "pgbouncer.ini"], cwd=folder, stdout=log, stderr=log, **ids)
    try:
        until = monotonic() + 10
        while not (folder / ".s.PGSQL.6432").exists():
            if pooler.poll() is not None or monotonic() > until:
                pytest.fail((folder / "log").read_text())
            sleep(0.02)
        yield f"postgresql://tuner@/postgres?host={folder}&port=6432"
    finally:
        pooler.kill()
        pooler.wait()
        shutil.rmtree(folder)


def _owner() -> pwd.struct_passwd | None:
    """Return the user of the server, since it refuses to run as root; None for the current one."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return pytest.fail("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
