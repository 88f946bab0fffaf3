"""`best_config`: what model code asks before it launches a kernel.

The table of an op on a device is read once; after that an answer is a dictionary hit. What was answered stays for the
life of the process, so that captured graphs stay true and ranks agree. Nothing here raises into a model, tunes or
waits: where there is no answer the kernel's default is given, and a line is logged once.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cache

from tuner import catalog, device
from tuner.errors import TunerError, UnknownName, UsageError
from tuner.kernels.spec import Config, Kernel, Problem, Signature
from tuner.lookup import Asked, Table
from tuner.records import Answer

_log = logging.getLogger("tuner")


@dataclass(frozen=True)
class Best:
    """The config to launch with, and where it comes from."""

    config: Config | None
    """None only where nothing is stored and there is no default either: the kernel cannot be loaded here."""
    match: str
    """`exact`, `stale`, `none` (the default) or `disabled` (the default, because `TUNER_DISABLE=1`)."""
    stale: tuple[str, ...] = ()
    """Why an answer is not exactly what was asked for."""
    answer: Answer | None = None
    """The evidence; None where the config is the default for want of an answer."""


_answered: dict[tuple[object, ...], Best] = {}


def best_config(op: str, /, *, device: int | str = 0, **problem: object) -> Best:
    """The best known config of a problem: `best_config("gemm", M=4096, dtype="bf16").config`.

    Never raises: a question that makes no sense is logged and answered with the default or with None.

    Args:
        op: a kernel's name.
        device: the index of a GPU here, or the `Device.id` of one elsewhere.
        problem: dims, `dtype` and attributes; what is left out takes the signature's default.
    """
    key = (op, device, *problem.items())
    best = _answered.get(key)
    if best is None:
        best = _answered[key] = _answer(op, device, problem)
    return best


def _answer(op: str, asked_device: int | str, values: dict[str, object]) -> Best:
    kernel = _kernel(op)
    try:
        problem = _signature(op).problem(values)
    except UsageError as error:
        _log.warning("%s", error)
        return Best(None, "none")
    if os.environ.get("TUNER_DISABLE") == "1":
        return Best(_default(kernel, problem, asked_device), "disabled")
    try:
        found = _table(op, _device_id(asked_device)).find(_question(kernel, problem, asked_device))
    except TunerError as error:
        _log.warning("%s: nothing can be looked up, the default is used: %s", problem.text, error)
        return Best(_default(kernel, problem, asked_device), "none")
    if found.stored is None:
        _log.warning("%s: nothing is tuned on %s, the default is used; %s", problem.text, found.device, found.command)
        return Best(_default(kernel, problem, asked_device), "none")
    if found.stale:
        _log.warning("%s: the config is stale (%s); %s", problem.text, "; ".join(found.stale), found.command)
    return Best(found.stored.answer.config, found.match, found.stale, found.stored.answer)


def _question(kernel: Kernel | None, problem: Problem, asked_device: int | str) -> Asked:
    """Everything known here is compared, unless the question is about a card elsewhere."""
    if isinstance(asked_device, str):
        return Asked(problem)
    here = device.environment(asked_device)
    return Asked(
        problem,
        triton=here.triton or None,
        source=kernel.source if kernel is not None else None,
        driver=here.driver or None,
        ptxas=here.ptxas or None,
    )


def _default(kernel: Kernel | None, problem: Problem, asked_device: int | str) -> Config | None:
    if kernel is None or isinstance(asked_device, str):
        return None
    try:
        return kernel.default_config(problem, device.describe(asked_device).limits)
    except TunerError:
        return None


def _device_id(asked_device: int | str) -> str:
    return asked_device if isinstance(asked_device, str) else device.describe(asked_device).id


@cache
def _table(op: str, device_id: str) -> Table:
    from tuner.db.store import Store, default_path

    if not default_path().exists():
        return Table(device_id, ())
    store = Store.open(default_path(), create=False)
    try:
        return Table(device_id, store.answers(op=op, device=device_id))
    finally:
        store.close()


@cache
def _kernel(op: str) -> Kernel | None:
    try:
        return catalog.load(op)
    except TunerError:
        return None


@cache
def _signature(op: str) -> Signature:
    """Of the kernel's code where that can be loaded, else as the store has it."""
    kernel = _kernel(op)
    if kernel is not None:
        return kernel.signature
    from tuner.db.store import Store, default_path

    stored = Store.open(default_path(), create=False).signatures() if default_path().exists() else {}
    if op not in stored:
        raise UnknownName(f"no kernel is called {op[:80]!r}, and nothing is stored under that name")
    return stored[op]
