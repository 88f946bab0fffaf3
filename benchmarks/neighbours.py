"""Loss of neighbour answers: leave-one-out over the tuned problems of a database, on the GPUs of this machine.

Each problem is looked up as if it had no answer, by the rule of tuner/lookup/neighbours.py. The losses are measured in
one interleaved comparison per problem: its own answer, the kernel's default, and the configs of all tuned problems
within reach. They are stored as the database's transfer losses, which the rule needs. A problem is judged by the
transfer losses between the other problems only.

    tuner bench --suite benchmarks/ladder.json --search 20s --gpu all    # tunes the problems that are not tuned
    python benchmarks/neighbours.py --gpu all --out neighbours.json
    python benchmarks/neighbours.py --out neighbours.json --evaluate     # judges again, without a GPU

A second run continues from the rows of `--out`. Exit code 1: a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from leave_one_out import LeftOut, Tried, assess, report, transfers

from tuner import catalog
from tuner.db.store import Store, database_at, default_database
from tuner.errors import MeasureError, NoDevice, NothingFound, TunerError
from tuner.kernels.spec import Config
from tuner.lookup.neighbours import distance, in_reach
from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.measure import device
from tuner.records import Comparison, Interval, Measurement, StoredAnswer
from tuner.search.verdict import ratio
from tuner.suites.suite import Entry
from tuner.tuning.bench import compare_configs, measure_configs
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.lanes import Lane, chosen_gpus, on_cards, spread
from tuner.tuning.target import Target

_MAX_SLOWDOWN = 2.0
"""Slowdown in single measurements above which a config is left out of the interleaved comparison."""


@dataclass(frozen=True)
class Work:
    """A tuned problem, and the answers of the problems within reach."""

    own: StoredAnswer
    near: tuple[StoredAnswer, ...]
    entry: Entry

    @property
    def key(self) -> list[int]:
        """Ids of the answers that a row is about."""
        return [self.own.id, *sorted(stored.id for stored in self.near)]


def works(store: Store, card: str, query_of: Callable[[StoredAnswer], Query]) -> list[Work]:
    """Return each problem with an exact answer, and the exact answers within its reach.

    Args:
        query_of: returns the query that an answer must be exact for.
    """
    signatures = store.signatures()
    exact = {}
    for stored in store.answers(device=card):
        if Table(card, [stored]).find(query_of(stored)).match == "exact":
            exact[stored.answer.problem] = stored
    found = []
    for problem, own in exact.items():
        near = [o for p, o in exact.items() if p != problem and p.op == problem.op and in_reach(p, problem)]
        found.append(Work(own, tuple(near), Entry(problem.op, signatures[problem.op], problem)))
    return found


def measure(work: Work, source: Target, stop: StopToken) -> LeftOut | None:
    """Measure one problem's interleaved comparison; None if it was stopped."""
    started = monotonic()
    own, space = work.own.answer.config, set(source.space)
    wanted = [own, source.default, *(stored.answer.config for stored in work.near)]
    configs = list(dict.fromkeys(config for config in wanted if config is not None and config in space))
    measurer = source.measurer()
    try:
        alone = measure_configs(configs, measurer, stop)
        if alone is None:
            return None
        if not alone[own].ok:
            raise MeasureError(f"its own answer fails: {alone[own].error}")
        slow = _MAX_SLOWDOWN * alone[own].latency_us
        comparison = compare_configs(
            [config for config in configs if alone[config].latency_us <= slow], measurer, 0, stop
        )
    finally:
        measurer.close()
    if isinstance(comparison, Measurement):
        raise MeasureError(f"a config failed in the comparison: {comparison.config.text}: {comparison.error}")
    if comparison is None:
        return None
    compare = partial(_compared, comparison, alone)
    return LeftOut(
        key=work.key,
        problem=work.own.answer.problem.text,
        default=None if source.default is None else compare(source.default, own)[0],
        tried=tuple(_tried(work, stored, source, alone, compare) for stored in work.near),
        rounds=len(comparison.rounds),
        marks=comparison.marks,
        seconds=monotonic() - started,
    )


def _tried(
    work: Work, stored: StoredAnswer, source: Target, alone: Mapping[Config, Measurement], compare: Any
) -> Tried:
    config = stored.answer.config
    away = distance(stored.answer.problem, work.own.answer.problem)
    found = alone.get(config)
    if found is None:
        return Tried(stored.id, away, valid=False)
    if not found.ok:
        return Tried(stored.id, away, valid=True, error=f"{found.outcome}: {found.error}")
    own = compare(config, work.own.answer.config)
    default = (None, None) if source.default is None else compare(config, source.default)
    return Tried(stored.id, away, True, *own, *default)


def _compared(
    comparison: Comparison, alone: Mapping[Config, Measurement], config: Config, other: Config
) -> tuple[float | None, Interval | None]:
    """Return the ratio over paired rounds if both were compared; else of the single measurements."""
    if {config.text, other.text} <= {*comparison.contenders}:
        return ratio(comparison, config.text, other.text)
    if not (alone[config].ok and alone[other].ok):
        return None, None
    apart = alone[config].latency_us / alone[other].latency_us
    return apart, (apart, apart)


class Kept:
    """The rows of `--out`."""

    def __init__(self, file: Path, head: Mapping[str, Any]) -> None:
        self._file, self._head = file, head
        self.rows: dict[tuple[int, ...], LeftOut] = {}
        if file.exists():
            kept = json.loads(file.read_text())
            if kept["measured_on"] == head:
                self.rows = {tuple(document["key"]): LeftOut.from_json(document) for document in kept["rows"]}

    def keep(self, row: LeftOut) -> None:
        """Write a row."""
        self.rows[tuple(row.key)] = row
        beside = self._file.with_name(f"{self._file.name}.part")
        rows = [row.as_json() for row in self.rows.values()]
        beside.write_text(json.dumps({"measured_on": self._head, "rows": rows}, indent=1))
        os.replace(beside, self._file)


def _measure_all(work: Sequence[Work], store: Store, kept: Kept, gpus: Sequence[int]) -> None:
    stop = StopToken()

    def on_row(done: tuple[Work, LeftOut]) -> None:
        one, row = done
        lost = [(t.from_answer, t.distance, t.slowdown) for t in transfers([row])]
        store.add_transfers(one.own.run_id, lost)
        kept.keep(row)
        print(f"{row.problem}: {len(row.tried)} neighbours, {row.seconds:.1f} s", file=sys.stderr)

    def lane(card: Lane, one: Work) -> tuple[Work, LeftOut] | None:
        try:
            row = measure(one, card.target(one.entry, False), stop)
        except (NothingFound, MeasureError) as error:
            print(f"{one.own.answer.problem.text}: {error}", file=sys.stderr)
            return None
        return None if row is None else (one, row)

    with on_cards(gpus, "neighbours", store, MeasureOptions(), Events()) as cards:
        spread(work, [partial(lane, card) for card in cards], on_row, stop)


def here(store: Store, gpu: str) -> tuple[list[int], dict[str, Any]]:
    """Return the GPUs to use, with the software that is measured with."""
    gpus = chosen_gpus(gpu)
    if not gpus:
        raise NoDevice("there is no GPU here; --evaluate judges the rows measured before")
    sources = {op: catalog.load(op).source for op in store.signatures() if op in catalog.names()}
    return gpus, {
        "device": device.describe(gpus[0]).id,
        **asdict(device.environment(gpus[0])),
        "sources": sources,
    }


def query_for(head: Mapping[str, Any], stored: StoredAnswer) -> Query:
    """Return the query for an answer's problem with the software that is measured with."""
    problem = stored.answer.problem
    versions = {name: head[name] for name in ("triton", "ptxas", "driver")}
    return Query(problem, **versions, source=head["sources"].get(problem.op, "none"), policy=stored.provenance.policy)


def main() -> int:
    """Measure the rows that `--out` does not have, and assess them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", help="file or URL; else the default database")
    parser.add_argument("--op", help="only this op")
    parser.add_argument("--gpu", default="auto", help="numbers of GPUs here, such as 0,1, or all; auto: the first")
    parser.add_argument("--out", type=Path, default=Path("neighbours.json"))
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document")
    parser.add_argument("--evaluate", action="store_true", help="assess by the rows of --out, and measure nothing")
    options = parser.parse_args()
    store = Store.open(database_at(options.db) if options.db else default_database())
    gpus, head = (
        ([], json.loads(options.out.read_text())["measured_on"]) if options.evaluate else here(store, options.gpu)
    )
    query_of = partial(query_for, head)
    work = [one for one in works(store, head["device"], query_of) if options.op in (None, one.entry.problem.op)]
    if not any(one.near for one in work):
        raise NothingFound(
            f"on {head['device']} no two problems within reach are tuned with this software; "
            "tune more with tuner bench --search"
        )
    kept = Kept(options.out, head)
    if gpus:
        _measure_all([one for one in work if one.near and tuple(one.key) not in kept.rows], store, kept, gpus)
    rows = [kept.rows[tuple(one.key)] for one in work if tuple(one.key) in kept.rows]
    verdict = assess(rows, {one.own.id: one.own for one in work}, query_of)
    print(json.dumps(verdict.as_json(), indent=2) if options.json else "\n".join(report(verdict)))
    return 0 if verdict.holds else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TunerError as error:
        sys.exit(str(error))
