"""The choice of finalists."""

from __future__ import annotations

from itertools import product

from scripted import SPACE, ScriptedMeasurer

from tuner.kernels.spec import Config, Dim, Knob, Signature
from tuner.records import Measurement, Outcome
from tuner.search import close_to_best, search


def test_runs_on_a_flat_top_name_the_same_winner() -> None:
    """300 configs are within 1 % of the best, and the verdict's preference decides among them."""
    knobs = tuple(Knob(name, tuple(range(1, 1 + count))) for name, count in (("A", 10), ("B", 10), ("C", 4)))
    flat = Signature("flat", (Dim("N"),), ("fp32",), (*knobs, Knob("num_warps", (1,)), Knob("num_stages", (1,))))
    names = [knob.name for knob in flat.knobs]
    space = [flat.config(dict(zip(names, each, strict=True))) for each in product(*(k.choices for k in flat.knobs))]

    def latency_us(config: Config) -> float:
        """A quarter of them is far slower; the others are within 0.5 % of each other."""
        return 150.0 if config["C"] == 4 else 100.0 + 0.05 * ((7 * config["A"] + 3 * config["B"]) % 10)

    def found(seed: int) -> Config:
        measurer = ScriptedMeasurer(latency_us, noise=0.003, seed=seed)
        result = search(space, None, measurer, seed=seed, sampler="random")
        assert result.stopped == "exhausted"
        assert result.verdict is not None
        assert len(result.verdict.ties) > 20
        return result.verdict.config

    winners = [found(seed) for seed in range(4)]
    assert len(set(winners)) == 1
    assert winners[0]["A"] == 1  # which takes the least shared memory here


def test_finalists_are_few_if_launches_are_long() -> None:
    def ranked(latency_us: float) -> list[Measurement]:
        return [Measurement(config, Outcome.OK, (latency_us + n / 100,) * 10) for n, config in enumerate(SPACE)]

    assert [len(close_to_best(ranked(latency_us))) for latency_us in (10.0, 1250.0, 2500.0, 1e5)] == [60, 50, 25, 8]
    assert close_to_best([]) == []
