"""`tuner search --on`: each problem as a task of a fleet, and the answers read from the shared store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import click

from tuner.cli.effort import HOW_HARD
from tuner.cli.notes import TerminalProgress
from tuner.cli.on import environment_of, given_words, problem_words, run_tasks, scheduler_on
from tuner.cli.ops import policy_option, shared_option, vendors_option
from tuner.cli.problem_rows import ended as print_ended
from tuner.cli.text import give, print_json
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.fleet.task import Ended, Task
from tuner.kernels.vendors import LIBRARIES
from tuner.lookup.table import LookupResult
from tuner.suites.suite import Entry, Suite
from tuner.tuning.gpu import AUTO, MeasureOptions
from tuner.tuning.lanes import open_lanes
from tuner.tuning.progress import tuned_line
from tuner.tuning.tuned import Tuned

replay_option = click.Option(
    ["--replay"], metavar="NAME|auto", help="Search a recorded space instead of a GPU; auto takes that of each problem."
)
search_vendors_option = vendors_option(LIBRARIES, "The fastest by a short timing is the vendor of the answer.")
FORWARDED: list[click.Parameter] = [*HOW_HARD, replay_option, policy_option, shared_option, search_vendors_option]
"""Options of a search that the command of a task gets if they are given."""


def search_on(
    on: str,
    suite: Suite,
    database: Database,
    options: MeasureOptions,
    as_json: bool,
    forwarded: Sequence[click.Parameter] = FORWARDED,
    words_of: Callable[[Entry], list[str]] = lambda entry: problem_words(entry.reference, entry.problem),
    as_list: bool = False,
) -> int:
    """Search the problems of a suite with a scheduler, and print their outcomes as a local search does.

    Args:
        forwarded: options that the command of each task gets if they are given to this one.
        words_of: returns the words after `tuner search` that name a problem.
        as_list: print one problem as several are printed.

    Raises:
        NothingFound: the search of the only problem failed.
        TunerError: as `scheduler_on` and `run_tasks`.
    """
    scheduler, store = scheduler_on(on, database, options.gpu, options.replay), Store.open(database)
    wanted = len(suite.entries)
    if options.replay == AUTO:  # only problems that were recorded, as in a local search
        with open_lanes(suite, store, options, TerminalProgress(bars=False)) as (suite, _):
            pass
    words, environment = [*given_words(forwarded), "--json"], environment_of(database)
    searches = {entry.problem.text: entry for entry in suite.entries}
    tasks = [Task(name, ("search", *words_of(entry), *words), environment) for name, entry in searches.items()]
    results, started = dict[str, Tuned](), monotonic()

    def on_end(ended: Ended) -> str:
        entry = searches[ended.task.name]
        results[ended.task.name] = tuned = _tuned(entry, ended, store)
        return tuned_line(tuned)

    run_tasks(scheduler, tasks, on_end)
    outcomes = [results[name] for name in searches if name in results]
    if as_list or wanted > 1 or not outcomes:
        left_out = wanted - len(suite.entries)
        return print_ended(suite, outcomes, monotonic() - started, store, as_json, left_out)
    (only,) = outcomes
    if only.found is None:
        raise NothingFound(only.error)
    if as_json:
        print_json(only.as_json(store.snapshot))
    else:
        give(only.found, store, as_json)
    return 0


def _tuned(entry: Entry, ended: Ended, store: Store) -> Tuned:
    """Return the outcome of a task; its answer is that of the run in the document that it printed."""
    document: Any = ended.output if isinstance(ended.output, dict) else {}
    rows = document.get("rows") or [document]  # of captured calls, all that have the problem's values
    document = next((row for row in rows if row.get("problem") == entry.problem.values), rows[0])
    answers = store.answers_of(document["run"]) if document.get("run") is not None else []
    stored = next((one for one in answers if one.answer.problem == entry.problem), None)
    if stored is None:
        lost = f"on {ended.where or 'a lost node'} it ended with code {ended.code} and without an answer"
        return Tuned(entry.problem, error=document.get("error") or ended.error or lost, seconds=ended.seconds)
    found = LookupResult(
        entry.problem, document["device"], document["match"], stored, recorded=stored.provenance.recorded
    )
    return replace(Tuned.of(store, found), elsewhere=document["searched"], seconds=ended.seconds)
