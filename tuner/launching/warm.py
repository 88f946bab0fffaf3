"""`precompile`: what a server calls when it starts, so that no request pays for a compile."""

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
from tuner.measure.deadline import CompileSettings
from tuner.measure.messages import Compile, Compiled, Pool
from tuner.records import Outcome

_AHEAD = 4
"""Requests to the pool beyond those it is at work on."""


@dataclass(frozen=True)
class Precompiled:
    """What came of compiling the answers of a device."""

    device: str
    compiled: int
    cached: int
    """Were in Triton's cache already."""
    failed: tuple[Compiled, ...]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """What `tuner warm --json` prints."""
        return {
            "device": self.device,
            "compiled": self.compiled,
            "cached": self.cached,
            "failed": [_failure(result) for result in self.failed],
            "seconds": round(self.seconds, 3),
        }


def precompile(*ops: str, device: int | str = 0, jobs: int | None = None, compile_s: float = 120.0) -> Precompiled:
    """Compiles the config of every problem that has an answer, side by side, into Triton's cache.

    The answers are those that `best_config` gives. For a GPU of this machine they are loaded too: then the first call
    on contiguous tensors of such a problem compiles nothing and reads nothing from disk.

    Args:
        ops: only these; none is all that are known by name.
        device: the index of a GPU here, or the `Device.id` of one elsewhere, for which only the cache is filled.
        jobs: compiles at once; None is one a usable core.
        compile_s: seconds that each may take.

    Raises:
        UnknownName: an op is unknown, or nobody has heard of a device that is named so.
        NoDevice: there is no such GPU, or triton is not installed.
        StoreError, BadBundle: the answers cannot be read.
        MeasureError: the compile pool cannot be kept alive.
    """
    return compile_ahead(client.current(), ops, device, jobs, compile_s)


def compile_ahead(
    pinned: TableCache,
    ops: Sequence[str],
    device: int | str,
    jobs: int | None = None,
    compile_s: float = 120.0,
    *,
    load: bool = True,
) -> Precompiled:
    """`precompile` for what is answered from `pinned`; without `load`, a GPU of this machine is left alone."""
    started = monotonic()
    name = device if isinstance(device, str) else cards.describe(device).id
    results: list[Compiled] = []
    for op in ops or catalog.names():
        wanted, limits = _wanted(pinned, op, device)
        if wanted and limits is not None:
            results += _compile(op, wanted, limits, jobs or cores.usable(), compile_s)
    if isinstance(device, str) and not results:
        _refuse_unknown(device, pinned.source.devices())
    if isinstance(device, int) and load:
        results = [_loaded(result, device) if result.outcome is Outcome.OK else result for result in results]
    usable = [result for result in results if result.outcome is Outcome.OK]
    cached = sum(result.compile_s is None for result in usable)
    failed = tuple(result for result in results if result.outcome is not Outcome.OK)
    return Precompiled(name, len(usable) - cached, cached, failed, monotonic() - started)


def _refuse_unknown(device: str, known: Collection[str]) -> None:
    """Where something is known at all: else no name can be told from another."""
    here = {cards.describe(index).id for index in range(cards.count())}
    if known:
        resolve_device(device, device if device in here else None, sorted(known))


def _wanted(pinned: TableCache, op: str, device: int | str) -> tuple[list[Compile], Limits | None]:
    """What would be launched for each problem of an op that has an answer, and on what kind of card."""
    if op not in catalog.names():
        catalog.load(op)  # says which there are
    answers = pinned.answers(op, device)
    problems = {stored.answer.problem.text: stored.answer.problem for stored in answers}
    wanted = []
    for problem in problems.values():
        config = pinned.best(op, device, problem.values)[0].config
        if config is not None:
            wanted.append(Compile(problem, config))
    described = [stored.provenance.device for stored in answers if stored.provenance.device.is_described]
    return wanted, described[-1].limits if described else None


def _compile(op: str, wanted: Sequence[Compile], limits: Limits, jobs: int, compile_s: float) -> Iterator[Compiled]:
    from tuner.measure.processes import Child

    pool = Child("tuner.measure.compile")
    try:
        pool.send(Pool(op, wanted[0].problem, limits, jobs, CompileSettings(compile_s, adaptive=None)))
        for number in range(len(wanted) + jobs + _AHEAD):
            if number < len(wanted):
                pool.send(wanted[number])
            if number >= jobs + _AHEAD:  # never so many on their way that both ends wait to be read
                yield pool.receive()
    except EOFError:
        raise MeasureError(f"the compile pool died: {pool.exit_text()}") from None
    finally:
        pool.kill(grace_s=2.0)


def _loaded(result: Compiled, index: int) -> Compiled:
    """Takes a config from Triton's cache into this process and onto the card; how that failed, if it did."""
    import torch

    from tuner.measure.compile import compile_launches, describe_error, is_compile_error

    assert result.problem is not None
    try:
        with torch.cuda.device(index):
            limits, kernel = cards.describe(index).limits, catalog.load(result.problem.op)
            for code in compile_launches(kernel, result.problem, result.config, limits):
                code.run  # noqa: B018  loads it
    except Exception as error:
        if not is_compile_error(error):
            raise
        return replace(result, outcome=Outcome.OUT_OF_RESOURCES, error=describe_error(error))
    return result


def _failure(result: Compiled) -> dict[str, Any]:
    problem = None if result.problem is None else result.problem.values
    op = None if result.problem is None else result.problem.op
    return {
        "op": op,
        "problem": problem,
        "config": dict(result.config),
        "outcome": result.outcome,
        "error": result.error,
    }
