"""`precompile`, which a server calls when it starts, so that no request waits for a compile."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from tuner import catalog
from tuner.client import client
from tuner.client.tables import TableCache
from tuner.errors import MeasureError
from tuner.kernels.spec import Limits
from tuner.lookup.devices import resolve_device
from tuner.measure import cores
from tuner.measure import device as cards
from tuner.measure.binaries import check_folder
from tuner.measure.deadline import CompileSettings
from tuner.measure.messages import Compile, Compiled, Pool
from tuner.records import Outcome


@dataclass(frozen=True)
class PrecompileSettings:
    """Limits of the compile pool of `precompile`."""

    compile_s: float = 120.0
    """Time limit of one compile, in seconds."""
    requests_ahead: int = 4
    """Number of requests sent to the pool beyond those that it compiles at once."""
    pool_grace_s: float = 2.0
    """Time that the pool has to exit before it is killed, in seconds."""


_SETTINGS = PrecompileSettings()


@dataclass(frozen=True)
class Precompiled:
    """Result of compiling the answers of a device."""

    device: str
    compiled: int
    """Number of configs compiled now."""
    cached: int
    """Number of configs that Triton's cache had already."""
    failed: tuple[Compiled, ...]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the document that `tuner warm --json` prints."""
        return {
            "device": self.device,
            "compiled": self.compiled,
            "cached": self.cached,
            "failed": [_failure(result) for result in self.failed],
            "seconds": round(self.seconds, 3),
        }


def precompile(
    *ops: str, device: int | str = 0, jobs: int | None = None, compile_s: float = _SETTINGS.compile_s
) -> Precompiled:
    """Compile the config of each problem that has an answer into Triton's cache, several at once.

    Configs are those that `best_config` returns. For a GPU of this machine they are loaded too: the first call on
    contiguous tensors of such a problem then compiles nothing and reads nothing from disk.

    Args:
        ops: ops to compile; all named ops if none is given.
        device: index of a GPU of this machine, or the `Device.id` of another, for which only the cache is filled.
        jobs: number of compiles at once; None is one for each usable core.
        compile_s: time limit of each compile, in seconds.

    Raises:
        UnknownName: there is no such op, or no answers for a device of that name.
        UsageError: Triton's cache cannot be written.
        NoDevice: there is no such GPU, or triton or another package of the kernel is not installed.
        StoreError, BadBundle: the answers cannot be read.
        MeasureError: the compile pool cannot be kept alive.
    """
    return compile_ahead(client.current(), ops, device, jobs, compile_s)


def compile_ahead(
    tables: TableCache,
    ops: Sequence[str],
    device: int | str,
    jobs: int | None = None,
    compile_s: float = _SETTINGS.compile_s,
    *,
    load: bool = True,
) -> Precompiled:
    """Do what `precompile` does with answers from `tables`; without `load`, nothing is loaded onto a GPU."""
    started = monotonic()
    name = device if isinstance(device, str) else cards.describe(device).id
    results: list[Compiled] = []
    for op in ops or catalog.names():
        wanted, limits = _answered(tables, op, device)
        if wanted and limits is not None:
            for result in _compile(op, wanted, limits, jobs or cores.usable(), compile_s):
                if result.outcome is Outcome.ERROR:
                    check_folder()
                results.append(result)
    if isinstance(device, str) and not results:
        _check_known(device, tables.source.devices())
    if isinstance(device, int) and load:
        results = [_loaded(result, device) if result.outcome is Outcome.OK else result for result in results]
    usable = [result for result in results if result.outcome is Outcome.OK]
    cached = sum(result.compile_s is None for result in usable)
    failed = tuple(result for result in results if result.outcome is not Outcome.OK)
    return Precompiled(name, len(usable) - cached, cached, failed, monotonic() - started)


def _check_known(device: str, known: Collection[str]) -> None:
    """Raise UnknownName if answers are stored, but none for this device and it is not in this machine."""
    here = {cards.describe(index).id for index in range(cards.count())}
    if known:
        resolve_device(device, device if device in here else None, sorted(known))


def _answered(tables: TableCache, op: str, device: int | str) -> tuple[list[Compile], Limits | None]:
    """Return the config to compile of each problem of an op that has an answer, and the card's limits."""
    if op not in catalog.names():
        catalog.load(op)  # raises UnknownName with the known names
    answers = tables.answers(op, device)
    problems = {stored.answer.problem.text: stored.answer.problem for stored in answers}
    wanted = []
    for problem in problems.values():
        config = tables.best(op, device, problem.values)[0].config
        if config is not None:
            wanted.append(Compile(problem, config))
    described = [stored.provenance.device for stored in answers if stored.provenance.device.is_described]
    return wanted, described[-1].limits if described else None


def _compile(op: str, wanted: Sequence[Compile], limits: Limits, jobs: int, compile_s: float) -> Iterator[Compiled]:
    from tuner.measure.processes import Child

    pool = Child("tuner.measure.compile")
    try:
        pool.send(Pool(op, wanted[0].problem, limits, jobs, CompileSettings(compile_s, adaptive=None)))
        ahead = jobs + _SETTINGS.requests_ahead  # bounded, so that the pool and this process never both wait to write
        for number in range(len(wanted) + ahead):
            if number < len(wanted):
                pool.send(wanted[number])
            if number >= ahead:
                yield pool.receive()
    except EOFError:
        catalog.load(op)  # raises what the pool could not import
        how, *_, last = [*pool.exit_text().splitlines(), ""]
        raise MeasureError(f"the compile pool died: {how}{last and f', {last}'}; run the command again") from None
    finally:
        pool.kill(grace_s=_SETTINGS.pool_grace_s)


def _loaded(result: Compiled, index: int) -> Compiled:
    """Load a config from Triton's cache onto the card. Return the result, which says if that failed."""
    import torch

    from tuner.measure.compile import compile_launches, describe_error, is_compile_error

    assert result.problem is not None
    try:
        with torch.cuda.device(index):
            limits, kernel = cards.describe(index).limits, catalog.load(result.problem.op)
            for code in compile_launches(kernel, result.problem, result.config, limits):
                code.run  # noqa: B018  loads it
    except Exception as error:
        if not is_compile_error(error) and not is_load_error(error):
            raise
        return replace(result, outcome=Outcome.OUT_OF_RESOURCES, error=describe_error(error))
    return result


def is_load_error(error: BaseException) -> bool:
    """Return whether the card refused a binary: it is damaged, of another architecture, or too large for its memory."""
    return isinstance(error, RuntimeError) and str(error).startswith("Triton Error [CUDA]")


def _failure(result: Compiled) -> dict[str, Any]:
    assert result.problem is not None  # the pool states it in each reply
    return {
        "op": result.problem.op,
        "problem": result.problem.values,
        "config": dict(result.config),
        "outcome": result.outcome,
        "error": result.error,
    }
