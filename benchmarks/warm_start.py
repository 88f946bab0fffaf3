"""Gain from measuring the winners of near problems first, by replaying the searches of a database. Needs no GPU.

Each search is replayed twice: the default, then its trials in their order; and the default, the winners of up to four
near problems, then its trials. A winner that the search did not measure counts as a failed trial, so the result is a
lower limit of the gain.

    python benchmarks/warm_start.py --db tuner.db
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence

from tuner.db.store import Store, database_at, default_database
from tuner.kernels.spec import Config
from tuner.records import StoredAnswer, StoredRun
from tuner.tuning.winners import Winner, promising

AT = (5, 10, 25, 50, 100)
"""Configs tried at each column of the table."""


def shares(order: Iterable[Config], latencies: Mapping[Config, float]) -> list[float]:
    """Return the share of the optimum's speed after each number of configs in `AT`."""
    tried = [latencies.get(config, float("inf")) for config in order]
    return [min(latencies.values()) / min(tried[:count]) for count in AT]


def compared(store: Store, stored: StoredAnswer, run: StoredRun, answers: Sequence[StoredAnswer]) -> list[list[float]]:
    """Return the shares of one search without winners and with them; [] if its default did not run."""
    latencies = {measurement.config: measurement.latency_us for measurement in store.known_to(run)}
    default = next((config for config in latencies if config.text == run.settings["default"]), None)
    if default is None:
        return []
    winners = [Winner.of(other) for other in answers if other.answer.problem != stored.answer.problem]
    space = {*latencies, *(winner.config for winner in winners)}
    first = promising(winners, run.signature, run.problem, run.provenance, space)
    return [
        shares(dict.fromkeys([default, *latencies]), latencies),
        shares(dict.fromkeys([default, *first, *latencies]), latencies),
    ]


def row(name: str, values: Sequence[Sequence[float]]) -> str:
    """Return a line with mean and 10th percentile at each number of configs."""
    columns = [sorted(column) for column in zip(*values, strict=True)]
    cells = [f"{sum(column) / len(column):.3f} / {column[(len(column) - 1) // 10]:.3f}" for column in columns]
    return f"{name:30} {'  '.join(cells)}"


def main() -> None:
    """Print a table for each op: of all searches, and of those whose answer is not the default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", help="file or URL; default: that of tuner")
    arguments = parser.parse_args()
    store = Store.open(database_at(arguments.db) if arguments.db else default_database(), create=False)
    everything = [stored for stored in store.answers() if stored.provenance.recorded is None]
    for op in sorted({stored.answer.problem.op for stored in everything}):
        answers = [stored for stored in everything if stored.answer.problem.op == op]
        pairs = []
        for stored in answers:
            run = store.run(stored.run_id)
            if run is not None and (both := compared(store, stored, run, answers)):
                pairs.append((stored.answer.kind, both))
        for kinds in (("tuned", "default"), ("tuned",)):
            of_these = [both for kind, both in pairs if kind in kinds]
            if of_these:
                print(f"{op}, {len(of_these)} searches that ended {' or '.join(kinds)}; after {AT} configs")
                print(row("default, then the sampler", [both[0] for both in of_these]))
                print(row("default, winners, sampler", [both[1] for both in of_these]))


if __name__ == "__main__":
    main()
