"""The tables that a client has read and keeps, and the best config for a query by them.

Nothing here raises into a model: if there is no answer, or it is not valid here, the kernel's default is returned and a
line is logged once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import RLock, Thread

from tuner.client.best import Best
from tuner.client.environment import is_disabled
from tuner.client.kernels import GuardedKernels, Known, Named
from tuner.client.settings import ClientSettings
from tuner.client.sources import AnswerSource, Loaded, local_cards, source_from_environment
from tuner.client.warn import WarnOnce
from tuner.errors import NoDevice, TunerError, UsageError, unraised
from tuner.kernels.spec import Kernel, Problem, Signature
from tuner.lookup.service import LookupService
from tuner.lookup.table import Table
from tuner.measure import device as cards
from tuner.records import Device, StoredAnswer

_SETTINGS = ClientSettings()


class TableCache:
    """Tables of one answer source, each read on first use and kept; an error of reading is kept too.

    Args:
        source: None is the one that the environment names at the first use.
        kernels: the kernels that configs are checked with; None loads them for this cache.
        warn: called with each warning; None logs each once.
    """

    def __init__(
        self,
        source: AnswerSource | None = None,
        *,
        kernels: GuardedKernels | None = None,
        warn: WarnOnce | None = None,
        settings: ClientSettings = _SETTINGS,
    ) -> None:
        self._given = self._source = source
        self._settings = settings
        self._warn = warn or WarnOnce(settings.max_warnings)
        self._kernels = kernels or GuardedKernels(self._warn, settings.max_tables)
        self._tables: dict[tuple[str, str], Loaded | TunerError] = {}
        self._fetching: set[tuple[str, str]] = set()
        self.after_fork()

    def after_fork(self) -> None:
        """Replace the locks: a child process has none of its parent's threads, which would release them."""
        self._reading = RLock()
        self._fetching.clear()

    @property
    def source(self) -> AnswerSource:
        """The source that the tables are read from."""
        if self._source is None:
            self._source = source_from_environment()
        return self._source

    def __len__(self) -> int:
        return len(self._tables)

    @property
    def sources(self) -> Mapping[str, str]:
        """Source hashes of the kernels that were looked up, by op."""
        return self._kernels.sources

    def devices(self) -> Sequence[str]:
        """Return the ids of all devices of the source, sorted.

        Raises:
            TunerError: the source cannot be read.
        """
        return sorted(self.source.devices())

    def cards(self) -> Sequence[Device]:
        """Return the descriptions of this machine's GPUs."""
        return local_cards()

    def table(self, op: str, device: str) -> Table:
        """Return the answers of an op on a device.

        Raises:
            TunerError: they cannot be read.
        """
        return self._loaded(op, device).table

    def answers(self, op: str, device: int | str) -> list[StoredAnswer]:
        """Return all answers of an op on a device.

        Raises:
            TunerError: they cannot be read, or there is no such GPU.
        """
        return list(self.table(op, _device_id(device)))

    def renewed(self, source: AnswerSource | None = None) -> TableCache:
        """Return a cache of the same tables as the source has them now, or this cache if none has changed.

        Args:
            source: another source, in place of the one of this cache. Without either, it is the one that the
                environment names now.

        Raises:
            TunerError: a table cannot be read.
        """
        if source is None and self._given is not None:
            source = self._given.reopened()
        new = TableCache(source, kernels=self._kernels, warn=self._warn, settings=self._settings)
        for (op, device_id), before in list(self._tables.items()):
            known = before if isinstance(before, Loaded) else None
            now = new.source.load(op, device_id, known)
            same = known is not None and _are_equal(now.table, known.table)
            new._tables[op, device_id] = replace(now, table=known.table) if known is not None and same else now
        if new._tables != self._tables or not self._tables:
            return new
        self._tables.update(new._tables)  # equal content of newer versions
        self._given, self._source = new._given, new._source
        return self

    def best(self, named: Named, device: int | str, values: Mapping[str, object]) -> tuple[Best, bool]:
        """Return the best config of a problem, and whether that is final: a later query need not look it up again.

        Args:
            named: the kernel.
            device: index of a GPU here, or id of a device.
            values: dims, dtype and attributes of the problem.
        """
        known = self._kernels.known(named)
        op, kernel = known.op, known.kernel
        if not op:
            return Best(None, "none"), True
        disabled = is_disabled(self._warn)
        if disabled and kernel is None:
            return Best(None, "disabled"), True
        ready = disabled or self._is_ready(op, device)
        signature = None if kernel is None else kernel.signature
        if signature is None and ready:
            signature = self._signature(op, device)
        if signature is None:
            return Best(None, "none"), ready
        try:
            problem = signature.problem(values)
        except UsageError as error:
            self._warn(str(error))
            return Best(None, "disabled" if disabled else "none"), True
        if disabled or not ready:
            return Best(self._kernels.default(kernel, problem, device), "disabled" if disabled else "none"), ready
        return self._look_up(known, problem, device), True

    def _look_up(self, known: Known, problem: Problem, device: int | str) -> Best:
        kernel = known.kernel
        try:
            lookup, device_id = self._lookup(kernel, device), _device_id(device)
        except NoDevice as error:
            return self._miss(kernel, problem, device, f"nothing can be looked up: {error}")
        if self._readable(problem.op, device_id) is None:
            return Best(self._kernels.default(kernel, problem, device), "none")
        query = lookup.query(problem, kernel=lambda: kernel)
        self._kernels.note_source(problem.op, query.source)
        found = lookup.find_on(device_id, query)
        found = replace(found, reference=known.reference)
        if found.stored is None:
            if kernel is not None and kernel.signature.captured and not found.stale:
                return Best(self._kernels.default(kernel, problem, device), "none")  # its function logs it once
            why = found.reason if found.stale else f"it is not tuned on {found.device}"
            return self._miss(kernel, problem, device, f"{why}; {found.command}")
        try:
            config = self._kernels.checked(kernel, found.stored, device)
        except UsageError as error:
            return self._miss(kernel, problem, device, f"{error}; {found.command}")
        if found.stale:
            self._warn(f"{problem.text}: the config is stale ({'; '.join(found.stale)}); {found.command}")
        if found.neighbour is not None:
            self._warn(f"{problem.text}: the config is {found.neighbour.text}; {found.command}")
        return Best(config, found.match, found.stale, found.stored.answer, found.neighbour)

    def _lookup(self, kernel: Kernel | None, device: int | str) -> LookupService:
        """Return a lookup that compares answers with the software here, unless the device is named by its id."""

        def is_valid(problem: Problem, stored: StoredAnswer) -> bool:
            return self._kernels.fits(kernel, problem, stored)

        def refused(stored: StoredAnswer) -> str:
            return self._kernels.refused(kernel, stored)

        def signature_of(op: str) -> Signature | None:
            return None if kernel is None else kernel.signature

        is_named = isinstance(device, str)
        card, environment = (None, None) if is_named else (cards.describe(device), cards.environment(device))
        return LookupService(
            self, card=card, environment=environment, fits=is_valid, refused=refused, signature_of=signature_of
        )

    def _miss(self, kernel: Kernel | None, problem: Problem, device: int | str, reason: str) -> Best:
        default = self._kernels.default(kernel, problem, device)
        if kernel is not None and kernel.signature.captured:
            given = "the first config is launched"
        elif default is not None:
            given = "the default is used"
        else:
            given = f"no config is given ({_no_default(kernel, device)})"
        self._warn(f"{problem.text}: {given}, since {reason}")
        return Best(default, "none")

    def _signature(self, op: str, device: int | str) -> Signature | None:
        """Return the signature that comes with the answers, or None with a warning."""
        try:
            loaded = self._readable(op, _device_id(device))
        except NoDevice as error:
            self._warn(f"{op[:80]}: nothing can be looked up: {error}")
            return None
        if loaded is not None and loaded.signature is None:
            self._warn(f"no kernel is called {op[:80]!r}, and nothing is stored under that name")
        return None if loaded is None else loaded.signature

    def _readable(self, op: str, device_id: str) -> Loaded | None:
        """Return what is loaded, or None with a warning if it cannot be read."""
        try:
            return self._loaded(op, device_id)
        except TunerError as error:
            self._warn(f"the kernels' defaults are used until tuner.refresh(), since nothing can be looked up: {error}")
            return None

    def _loaded(self, op: str, device_id: str) -> Loaded:
        key = (op, device_id)
        outcome = self._tables.get(key)
        if outcome is None:
            with self._reading:
                outcome = self._tables.get(key) or self._read(key)
        if isinstance(outcome, TunerError):
            raise unraised(outcome)
        return outcome

    def _read(self, key: tuple[str, str]) -> Loaded | TunerError:
        most = self._settings.max_tables
        if len(self._tables) >= most:
            return UsageError(f"a process reads at most {most:,} tables of an op on a device, so not {key[0][:80]!r}")
        outcome: Loaded | TunerError
        try:
            outcome = self.source.load(*key)
        except TunerError as error:
            outcome = unraised(error)
        else:
            if outcome.skipped:
                skipped = f"{len(outcome.skipped):,} answers are skipped; the first, since {outcome.skipped[0]}"
                self._warn(f"{self.source.origin}: {skipped}")
        self._tables[key] = outcome
        return outcome

    def _is_ready(self, op: str, device: int | str) -> bool:
        """Return whether a query may read its table now, which it must not while a CUDA graph is captured.

        If not, a thread reads the table meanwhile.
        """
        try:
            key = (op, _device_id(device))
        except NoDevice:
            return True
        if key in self._tables or not self.source.waits or not _is_capturing():
            return True
        if key not in self._fetching:
            self._fetching.add(key)
            Thread(target=self._fetch, args=key, name="tuner-fetch", daemon=True).start()
        return False

    def _fetch(self, op: str, device_id: str) -> None:
        try:
            self._loaded(op, device_id)
        except TunerError:
            pass  # kept, and logged by the next query
        finally:
            self._fetching.discard((op, device_id))


def _are_equal(one: Table, other: Table) -> bool:
    return [*one] == [*other] and [*one.transfers] == [*other.transfers]


def _no_default(kernel: Kernel | None, device: int | str) -> str:
    if kernel is None:
        return "its code cannot be loaded here, so there is no default"
    if isinstance(device, str):
        return "a device that is named by its id has no known limits, so there is no default"
    return "its default cannot be computed here"


def _device_id(device: int | str) -> str:
    return device if isinstance(device, str) else cards.describe(device).id


def _is_capturing() -> bool:
    """Return whether the current stream captures a CUDA graph. A process that has not loaded torch captures none."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    initialized = getattr(cuda, "is_initialized", bool)  # torch may be half imported
    return cuda is not None and initialized() and bool(cuda.is_current_stream_capturing())
