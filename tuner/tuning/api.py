"""`tune`: search the best config of a problem, of several, or one config for several, and store it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypedDict, Unpack, overload

from tuner import catalog, recorded
from tuner.db.store import Store, database_at, default_database
from tuner.errors import Interrupted, TunerError, UsageError
from tuner.kernels.parts import plain
from tuner.kernels.spec import Kernel, Problem, Signature
from tuner.records import Answer
from tuner.report.text import short
from tuner.search import DEFAULT_SAMPLER, Result
from tuner.suites.suite import Entry, Suite
from tuner.tuning.effort import Effort, parse_duration
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import AUTO, MeasureOptions
from tuner.tuning.joint import tune_jointly
from tuner.tuning.joint_answer import JointAnswer
from tuner.tuning.lanes import open_lanes
from tuner.tuning.progress import Progress
from tuner.tuning.several import tune_one, tune_several
from tuner.tuning.tuned import Tuned, nothing_ran
from tuner.tuning.vendors import check_vendors

ProblemLike = Problem | Mapping[str, object]
"""A problem, or its dims, `dtype` and attributes by name; what is left out takes the signature's default."""


class TuneOptions(TypedDict, total=False):
    """Options of `tune`, which documents them."""

    store: Store | str | Path | None
    gpu: int | str
    replay: str | None
    policy: str
    shared: bool
    vendors: str | None
    effort: str
    trials: int | None
    budget: float | str | None
    sampler: str
    seed: int
    warm_start: bool
    force: bool
    on_event: Events | None
    stop: Callable[[], bool] | None


@overload
def tune(
    kernel: str | Path | Kernel, problem: ProblemLike, *, joint: None = None, **options: Unpack[TuneOptions]
) -> Answer: ...


@overload
def tune(
    kernel: str | Path | Kernel, problem: Sequence[ProblemLike], *, joint: None = None, **options: Unpack[TuneOptions]
) -> list[Tuned]: ...


@overload
def tune(
    kernel: str | Path | Kernel, problem: Sequence[ProblemLike], *, joint: str, **options: Unpack[TuneOptions]
) -> JointAnswer: ...


def tune(
    kernel: str | Path | Kernel,
    problem: ProblemLike | Sequence[ProblemLike],
    *,
    store: Store | str | Path | None = None,
    gpu: int | str = AUTO,
    replay: str | None = None,
    policy: str = AUTO,
    shared: bool = False,
    vendors: str | None = None,
    effort: str = "normal",
    trials: int | None = None,
    budget: float | str | None = None,
    sampler: str = DEFAULT_SAMPLER,
    seed: int = 0,
    warm_start: bool = True,
    force: bool = False,
    joint: str | None = None,
    on_event: Events | None = None,
    stop: Callable[[], bool] | None = None,
) -> Answer | list[Tuned] | JointAnswer:
    """Search the fastest config of a problem on a GPU of this machine, store it as the answer, and return it.

    A stored answer is returned at once if it is exact and was searched at least as thoroughly. Without a GPU a recorded
    space of the problem is replayed, and the answer says so in its provenance.

        answer = tuner.tune("gemm", {"M": 4096})
        print(answer.config, answer.latency_us, answer.speedup)

    Args:
        kernel: the name of an op, the path of a kernel file, or the `Kernel` that such a file defines.
        problem: dims, `dtype` and attributes; or a sequence of problems, each of which has an outcome of its own.
        store: a store, or the path or URL of its database; None is `TUNER_DB`, else the user's data folder.
        gpu: the number of a GPU; `"auto"`, the first one; for several problems also `"0,1"` or `"all"`.
        replay: the name of a recorded space to replay in place of a GPU, or `"auto"` for the one of the problem.
        policy: `"cold"`, `"warm"` or `"graph"`; `"auto"` takes a graph for short problems, else a cold cache.
        shared: measure even while other processes use the GPU, and mark the answer.
        vendors: implementations of which the fastest is timed beside the finalists: `"eager"`, `"libraries"`, `"all"`
            and names, separated by commas, as `--vendors` takes them; None is `"libraries"`.
        effort: `"quick"`, `"normal"` or `"exhaustive"`.
        trials: configs to measure of a problem at most, in place of the limits of the effort.
        budget: seconds for each problem, or a text such as `"5m"`.
        sampler: the sampler that proposes configs: `"gp"`, `"tpe"`, `"random"` or `"grid"`.
        seed: of the sampler and of the order of the rounds.
        warm_start: measure the winners of near problems first.
        force: search again and measure every config again, even if results are stored.
        joint: find one config for all problems, by `"geomean"` or by `"worst"` of its speeds over their defaults.
        on_event: receives the progress; None shows it on a terminal or in a notebook.
        stop: polled during the search, such as `threading.Event().is_set`; the measurements so far are kept.

    Returns:
        The answer; for a sequence a list of `Tuned`, in its order; with `joint` a `JointAnswer`.

    Raises:
        UsageError: the kernel, the problem or an option is not understood.
        NoDevice: there is no GPU and no recorded space, or other processes use the GPU.
        NothingFound: no config ran with correct results; of one problem, or jointly.
        Interrupted: the search was stopped before there was an answer; of one problem, or jointly.
        MeasureError: the worker processes cannot be kept alive.
        StoreError: the database cannot be read or written.
    """
    _refuse_while_imported(kernel)
    options = MeasureOptions(str(gpu), replay, policy, shared, vendors)
    seconds = parse_duration(budget) if isinstance(budget, str) else budget
    how = Effort.named(effort, trials, seconds, sampler=sampler, seed=seed, warm_start=warm_start, force=force)
    token = StopToken() if stop is None else StopToken(stop)
    several = several_problems(problem)
    with opened_store(store) as opened, shown_progress(on_event) as events:
        suite, problems = _suite(kernel, [problem] if several is None else several, opened)
        check_vendors(suite, vendors, replay)
        if joint is not None:
            return _joint_answer(tune_jointly(suite, joint, how, opened, options, events, token))
        if several is None:
            return _answer(tune_one(suite.entries[0], how, opened, options, events, token))
        with open_lanes(suite, opened, options, events) as (measured, lanes):
            results = tune_several(measured, lanes, how, opened, events, token)
    by_problem = {result.problem.text: result for result in results}
    missing = "interrupted before it was searched" if token() else "there is no GPU here, and it was not recorded"
    return [by_problem.get(each.text, Tuned(each, error=missing)) for each in problems]


def _answer(tuned: Tuned) -> Answer:
    if tuned.answer is not None:
        return tuned.answer
    assert tuned.result is not None
    raise _without_answer(short(tuned.problem), tuned.result)


def _joint_answer(found: JointAnswer) -> JointAnswer:
    if found.result.verdict is not None:
        return found
    raise _without_answer(found.name, found.result)


def _without_answer(name: str, result: Result) -> TunerError:
    """Return the error of a search that ended without an answer."""
    if result.stopped != "interrupted":
        return nothing_ran(result)
    return Interrupted(f"{name}: stopped after {len(result.measurements):,} configs; tune again to continue")


def several_problems(problem: object) -> list[object] | None:
    """Return the problems of a sequence; None for one problem."""
    is_one = isinstance(problem, Problem | Mapping | str)
    return [*problem] if isinstance(problem, Iterable) and not is_one else None


def _suite(kernel: str | Path | Kernel, problems: Sequence[object], store: Store) -> tuple[Suite, list[Problem]]:
    """Return the suite, which has each problem once, and the problems as they were given."""
    if not problems:
        raise UsageError("tune takes a problem or several, and the sequence is empty")
    reference = kernel_reference(kernel)
    signature = kernel.signature if isinstance(kernel, Kernel) else known_signature(reference, store)
    parsed = [checked_problem(signature, problem) for problem in problems]
    if others := [problem.text for problem in parsed if problem.op != signature.op]:
        raise UsageError(f"{others[0]} is not a problem of {signature.op}")
    entries = {problem.text: Entry(reference, signature, problem) for problem in parsed}
    return Suite(signature.op if len(entries) > 1 else parsed[0].text, tuple(entries.values())), parsed


def checked_problem(signature: Signature, given: object) -> Problem:
    """Return a problem, or that of dims, dtype and attributes by name. Raises UsageError for anything else."""
    if isinstance(given, Problem):
        return given
    if isinstance(given, Mapping):
        return signature.problem(given)
    raise UsageError(f"a problem is its sizes by name, such as {{'M': 4096}}, not {given!r:.60}")


def known_signature(reference: str, store: Store) -> Signature:
    """Return the signature of a kernel; if its code cannot be loaded here, the recorded or the stored one."""
    return catalog.signature(reference, lambda: recorded.signatures() | store.signatures())


def kernel_reference(kernel: str | Path | Kernel) -> str:
    """Return the name or the file by which worker processes load a kernel.

    Raises:
        UsageError: the kernel is neither an op with a name nor the `KERNEL` of a file.
    """
    if not isinstance(kernel, Kernel):
        return str(kernel)
    if kernel.op in catalog.names() and catalog.load(kernel.op) == kernel:
        return kernel.op
    home = sys.modules.get(plain(kernel.launch).__module__)  # before others, which may have imported the kernel
    for module in (home, *list(sys.modules.values())):
        names = getattr(module, "__dict__", {})  # a lazy module would import what it is asked for
        if names.get("KERNEL") is kernel and (file := names.get("__file__")):
            return str(file)
    raise UsageError(
        f"worker processes load a kernel from a file that defines KERNEL = Kernel(...), and {kernel.op} has none; "
        "write it to a file and pass its path"
    )


def _refuse_while_imported(kernel: str | Path | Kernel) -> None:
    """Raise UsageError if the caller's file is imported for its kernel, here or in a worker process."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is vars(catalog):
            what = kernel.op if isinstance(kernel, Kernel) else kernel
            raise UsageError(
                f"a kernel's file is imported to compile and measure it, and this import would tune {what} again; "
                "put the call under if __name__ == '__main__':"
            )
        frame = frame.f_back


@contextmanager
def opened_store(store: Store | str | Path | None) -> Iterator[Store]:
    """Yield a store, or open the one at a path or URL and close it; None is the user's."""
    if isinstance(store, Store):
        yield store
        return
    opened = Store.open(default_database() if store is None else database_at(store))
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def shown_progress(events: Events | None) -> Iterator[Events]:
    """Yield the receiver of the progress; None shows it on a terminal or in a notebook."""
    if events is not None:
        yield events
        return
    with Progress() as progress:
        yield progress
