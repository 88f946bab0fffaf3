"""What trying the winners of near problems first is worth, told from the searches a database holds. Needs no GPU.

Every search is run again on what it measured: the default first, then its trials in their order; and the same with what
won up to four near problems between the two. A winner that the search did not measure takes its turn and finds nothing,
so what is shown is the least that it is worth.

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


def shares(order: Iterable[Config], latencies: Mapping[Config, float]) -> list[float]:
    """Of the optimum's speed, after so many configs as `AT` says."""
    tried = [latencies.get(config, float("inf")) for config in order]
    return [min(latencies.values()) / min(tried[:count]) for count in AT]


def compared(store: Store, stored: StoredAnswer, run: StoredRun, answers: Sequence[StoredAnswer]) -> list[list[float]]:
    """The shares of one search without winners, and with them; [] where its default did not run."""
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
    """Mean and 10th percentile at each count."""
    columns = [sorted(column) for column in zip(*values, strict=True)]
    cells = [f"{sum(column) / len(column):.3f} / {column[(len(column) - 1) // 10]:.3f}" for column in columns]
    return f"{name:30} {'  '.join(cells)}"


def main() -> None:
    """Prints one table an op: all searches, and those whose default was not the answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", help="file or URL; else the usual one")
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
