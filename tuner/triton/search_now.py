"""Mode `tune`: a search in the worker process at the first call of a key, or Triton's benchmark in this process."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from triton.runtime.autotuner import Config

from tuner.captured.call import CapturedCall
from tuner.client import run_report
from tuner.client.ranks import is_tuning_rank
from tuner.errors import Interrupted, TunerError
from tuner.triton.capture import completed
from tuner.triton.configs import config_of
from tuner.triton.notices import notify_tuned

if TYPE_CHECKING:
    from tuner.triton.choice import Choice, Given
    from tuner.triton.served import Served

_log = logging.getLogger("tuner")


@dataclass(frozen=True)
class Searched:
    """The outcome of tuning at a call."""

    config: Config | None = None
    """Config of the answer; None if there is no answer."""
    as_triton: bool = False
    """True if Triton's autotuner is to tune in this process."""


def search_now(served: Served, choice: Choice, given: Given) -> Searched:
    """Search the config of a call and store the answer. Only rank 0 searches.

    Raises:
        KeyboardInterrupt: the search was interrupted.
    """
    if not is_tuning_rank():
        return Searched()
    reason = _reason_for_triton(served, choice)
    if reason:
        served.context.warn(f"{served.name} is tuned in this process, as Triton does, and not stored: {reason}")
        return Searched(as_triton=True)
    assert choice.call is not None
    try:
        return Searched(_tuned(served, completed(served, choice.call, given), given))
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from None
    except Exception as error:  # noqa: BLE001  the model runs on with what Triton finds
        _log.debug("tuning %s failed", served.name, exc_info=True)
        text = str(error) if isinstance(error, TunerError) else f"{type(error).__name__}: {error}"
        reason = " ".join(text.split())[:300]
        served.context.warn(f"{served.name} is tuned in this process, as Triton does, and not stored: {reason}")
        return Searched(as_triton=True)


def _reason_for_triton(served: Served, choice: Choice) -> str:
    """Return why a worker process cannot tune a function; empty if it can."""
    autotuner = served.autotuner
    if autotuner.use_cuda_graph or autotuner._do_bench is not None:
        return "it has a benchmark of its own (do_bench, warmup, rep or use_cuda_graph)"
    if autotuner.user_defined_pre_hook or autotuner.user_defined_post_hook:
        return "it has a pre_hook or post_hook of its own"
    return "" if choice.call is not None else choice.refusal


def _tuned(served: Served, call: CapturedCall, given: Given) -> Config:
    """Search a call in a worker process. Return the config of its answer."""
    from tuner.db.store import Store, default_database
    from tuner.tuning import Progress
    from tuner.tuning.captured import tune_call
    from tuner.tuning.effort import Effort
    from tuner.tuning.events import StopToken
    from tuner.tuning.gpu import MeasureOptions

    autotuner, context = served.autotuner, served.context
    started = monotonic()
    effort = Effort.named(context.settings.effort)
    options = MeasureOptions(gpu=str(given.card), shared=True)  # this process is a user of the card
    with closing(Store.open(default_database())) as store, Progress() as progress:
        tuned = tune_call(
            call, store, effort=effort, options=options, events=progress, stop=StopToken(), widen=served.stated.widen
        )
    answer = tuned.answer
    if answer is None or answer.latency_us is None:
        if tuned.interrupted:
            raise Interrupted(f"{served.name}: the search was stopped")
        raise TunerError(tuned.error or "no config ran with agreeing results")
    config = config_of(answer.config, autotuner)
    autotuner.bench_time = monotonic() - started
    autotuner.configs_timings = {config: [answer.latency_us / 1000.0] * 3}
    run_report.note("tuned", call.op, tuned.problem.text)
    notify_tuned(autotuner, given.key, config)
    return config
