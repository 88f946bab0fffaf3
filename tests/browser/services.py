"""`tuner serve` as a process of its own, over a store that a factory has made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from helpers import until

from tuner.db.store import Store

TOKEN = "correct-horse-battery"
Factory = Callable[[Path], None]
"""Function that makes a store at a path."""
_SERVING = re.compile(r"^Serving http://[^/]*:(\d+)", re.MULTILINE)
_READY_S = 120.0
"""Seconds in which the service has to be ready; it needs about 2."""


@dataclass
class Service:
    """A running service."""

    db: Path
    token: str | None = None
    port: int = 0
    _process: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """All that it has written to stderr."""
        return self._log.read_text()

    @property
    def memory_bytes(self) -> int:
        """Resident memory of the process."""
        pages = Path(f"/proc/{self._process[-1].pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Yield its store, for writes while it serves."""
        store = Store.open(self.db)
        try:
            yield store
        finally:
            store.close()

    def start(self) -> None:
        """Start it; the second time on the same port, as after a restart."""
        words = ["serve", "--port", str(self.port), "--db", str(self.db), "--no-access-log"]
        environment = {**os.environ, "TUNER_TOKEN": self.token or ""}
        with self._log.open("w") as log:
            command = [sys.executable, "-P", "-m", "tuner", *words]
            self._process.append(subprocess.Popen(command, stderr=log, stdout=log, env=environment))
        until(self._is_ready, _READY_S)

    def stop(self) -> None:
        """Stop it at once, as a crash does."""
        self._process[-1].kill()
        self._process[-1].wait()

    def _is_ready(self) -> bool:
        assert self._process[-1].poll() is None, self.log
        found = _SERVING.search(self.log)
        if found is None:
            return False
        self.port = int(found[1])
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    @property
    def _log(self) -> Path:
        return self.db.with_suffix(".log")


class Services:
    """Services of a test session. Those that only read are shared: one for each factory and token."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built = dict[Factory, Path]()
        self._shared = dict[tuple[Factory, str | None], Service]()
        self._started, self._own = 0, list[Service]()

    def __call__(self, factory: Factory, *, token: str | None = None, own: bool = False) -> Service:
        """Return a running service over a copy of the store that a factory makes, once for each session.

        Args:
            token: for writes; None refuses them.
            own: return one of its own, to a test that writes, stops it or measures its memory.
        """
        if not own and (factory, token) in self._shared:
            return self._shared[factory, token]
        if factory not in self._built:
            folder = self._folder / f"built-{len(self._built)}"
            folder.mkdir()
            factory(folder / "tuner.db")
            self._built[factory] = folder / "tuner.db"
        folder = self._folder / str(self._started)
        folder.mkdir()
        self._started += 1
        made = Service(Path(shutil.copy(self._built[factory], folder / "tuner.db")), token)
        if own:
            self._own.append(made)
        else:
            self._shared[factory, token] = made
        made.start()
        return made

    def stop_own(self) -> None:
        """Stop those that are not shared."""
        while self._own:
            self._own.pop().stop()

    def stop(self) -> None:
        """Stop all."""
        self.stop_own()
        while self._shared:
            self._shared.popitem()[1].stop()
