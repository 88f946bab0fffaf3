"""Storage of calls without a stored config, which `tuner search --captured` tunes."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from tuner.captured.call import CapturedCall
from tuner.captured.problem import problem_of_call
from tuner.client import run_report
from tuner.errors import TunerError
from tuner.measure import device as cards
from tuner.records import Device
from tuner.triton.describe import complete
from tuner.triton.mode import keeps_values
from tuner.triton.refusal import CannotCapture

if TYPE_CHECKING:
    from tuner.triton.choice import Choice, Given
    from tuner.triton.served import Served

_log = logging.getLogger("tuner")


def store_call(served: Served, choice: Choice, given: Given) -> None:
    """Store a call in the database. Never raises: a failure is one line in the log.

    Args:
        choice: the config of the call, with its description.
    """
    context = served.context
    if choice.call is None:
        context.warn(f"{served.name} is not captured: {choice.refusal}")
        return
    if context.is_full:
        return
    try:
        call = completed(served, choice.call, given)
        card = cards.describe(given.card)
        if not _added(served, call, card):
            return
    except CannotCapture as error:
        context.warn(f"{served.name} is not captured: {error}")
    except TunerError as error:
        context.is_full = True
        context.warn(f"no {'more calls are' if context.captured else 'call is'} captured, since {error}")
    except Exception as error:  # noqa: BLE001  no error of ours may stop a model
        _log.debug("capturing %s failed", served.name, exc_info=True)
        context.warn(f"{served.name} is not captured: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    else:
        run_report.note(run_report.CAPTURED, call.op, problem_of_call(call).text)


def completed(served: Served, call: CapturedCall, given: Given) -> CapturedCall:
    """Return a described call with grids and contents.

    Raises:
        CannotCapture: as `complete`.
    """
    context = served.context
    values = keeps_values(context.warn) if served.stated.values is None else served.stated.values
    grid = given.kwargs.get("grid")
    return complete(call, served.autotuner, given.args, given.kwargs, grid, values=values, settings=context.settings)


def _added(served: Served, call: CapturedCall, card: Device) -> bool:
    from tuner.db.store import Store, default_database  # a served process need not load SQLAlchemy

    context = served.context
    with context.counting:
        if context.captured >= context.settings.max_captured:
            context.is_full = True
            context.warn(f"a process captures up to {context.settings.max_captured:,} calls; no more are captured")
            return False
        context.captured += 1
    with closing(Store.open(default_database())) as store:
        if store.captured.add(call, card):
            return True
    context.is_full = True
    context.warn("the database has its limit of captured calls; tuner captured --drop removes them")
    return False
