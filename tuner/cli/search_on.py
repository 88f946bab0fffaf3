"""`tuner search --on`: each problem as a task of an engine, and the answers read from the shared store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

import click

from tuner.cli.notes import TerminalProgress
from tuner.cli.on import engine_on, environment_of, given_words, problem_words, run_tasks
from tuner.cli.problem_rows import ended as print_ended
from tuner.cli.text import give
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.fleet.task import Ended, Task
from tuner.lookup.table import LookupResult
from tuner.suites.suite import Entry, Suite
from tuner.tuning.gpu import AUTO, MeasureOptions
from tuner.tuning.lanes import open_lanes
from tuner.tuning.progress import tuned_line
from tuner.tuning.tuned import Tuned


def search_on(
    on: str,
    suite: Suite,
    database: Database,
    options: MeasureOptions,
    forwarded: Sequence[click.Parameter],
    as_json: bool,
) -> int:
    """Search the problems of a suite on an engine, and print their outcomes as a local search does.

    Args:
        forwarded: options that the command of each task gets if they are given to this one.

    Raises:
        NothingFound: the search of the only problem failed.
        TunerError: as `engine_on` and `run_tasks`.
    """
    engine, store = engine_on(on, database, options.gpu, options.replay), Store.open(database)
    if options.replay == AUTO:  # only problems that were recorded, as in a local search
        with open_lanes(suite, store, options, TerminalProgress(bars=False)) as (suite, _):
            pass
    words, environment = [*given_words(forwarded), "--json"], environment_of(database)
    searches = {entry.problem.text: entry for entry in suite.entries}
    tasks = [
        Task(name, ("search", *problem_words(entry.reference, entry.problem), *words), environment)
        for name, entry in searches.items()
    ]
    results, started = dict[str, Tuned](), monotonic()

    def on_end(ended: Ended) -> str:
        entry = searches[ended.task.name]
        results[ended.task.name] = tuned = _tuned(entry, ended, store)
        return tuned_line(tuned)

    run_tasks(engine, tasks, on_end)
    outcomes = [results[name] for name in searches if name in results]
    if len(suite.entries) > 1 or not outcomes:
        return print_ended(suite, outcomes, monotonic() - started, store, as_json)
    (only,) = outcomes
    if only.found is None:
        raise NothingFound(only.error)
    give(only.found, store, as_json)
    return 0


def _tuned(entry: Entry, ended: Ended, store: Store) -> Tuned:
    """Return the outcome of a task; its answer is that of the run in the document that it printed."""
    document = ended.output if ended.code == 0 and isinstance(ended.output, dict) else {}
    answers = store.answers_of(document["run"]) if document.get("run") is not None else []
    stored = next((one for one in answers if one.answer.problem == entry.problem), None)
    if stored is None:
        lost = f"on {ended.where or 'a lost node'} it ended with code {ended.code} and without an answer"
        return Tuned(entry.problem, error=ended.error or lost, seconds=ended.seconds)
    found = LookupResult(
        entry.problem, document["device"], document["match"], stored, recorded=stored.provenance.recorded
    )
    return replace(Tuned.of(store, found), elsewhere=document["searched"], seconds=ended.seconds)
