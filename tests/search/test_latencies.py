"""A latency is finite and above 0: anything else is a failed trial, and never an answer or an arithmetic error."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, nan

import pytest
from scripted import BEST, DEFAULT, SPACE, ScriptedMeasurer, bowl

from tuner import recorded
from tuner.kernels.spec import Config
from tuner.recorded import RecordedMeasurer, RecordedSpace
from tuner.recorded.space import dumps, loads
from tuner.records import VENDOR, Comparison, Measurement, Outcome, files
from tuner.search import SAMPLERS, Budget, search

NO_LATENCIES = [0.0, -0.0, -1.0, inf, -inf, nan]


@pytest.mark.parametrize("wrong", NO_LATENCIES)
def test_a_measurement_with_such_a_sample_failed(wrong: float) -> None:
    measurement = Measurement(BEST, Outcome.OK, (10.0, wrong, 11.0), registers=8)
    assert (measurement.outcome, measurement.samples, measurement.stage) == (Outcome.ERROR, (), "time")
    assert measurement.error == f"ValueError: a latency is finite and above 0, not {wrong:g} us"
    assert measurement.failure == "error (ValueError)"
    assert (measurement.latency_us, measurement.registers) == (inf, 8)


def test_latencies_whose_sum_is_infinite_failed() -> None:
    assert Measurement(BEST, Outcome.OK, (1e308, 1e308)).outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("sampler", "wrong"), [*((sampler, nan) for sampler in SAMPLERS), *(("gp", wrong) for wrong in NO_LATENCIES[:-1])]
)
def test_a_search_answers_with_another_config(sampler: str, wrong: float) -> None:
    """Samplers are told of the failure alone, whichever the number is."""

    def latency_us(config: Config) -> float:
        return wrong if config == BEST else bowl(config)

    result = search(SPACE, DEFAULT, ScriptedMeasurer(latency_us), sampler=sampler, budget=Budget(trials=1000))
    assert result.verdict is not None
    assert result.verdict.config != BEST
    (failed,) = (m for m in result.measurements if m.config == BEST)
    assert failed.outcome is Outcome.ERROR


@pytest.mark.parametrize("wrong", NO_LATENCIES)
def test_a_default_without_a_latency_failed(wrong: float) -> None:
    def latency_us(config: Config) -> float:
        return wrong if config == DEFAULT else bowl(config)

    verdict = search(SPACE, DEFAULT, ScriptedMeasurer(latency_us), budget=Budget(trials=1000)).verdict
    assert verdict is not None
    assert (verdict.config, verdict.speedup, verdict.default_latency_us) == (BEST, None, None)


class Compared(ScriptedMeasurer):
    """A measurer whose rounds have a wrong number for some contender, from some round on."""

    def __init__(self, wrong: Callable[[str], float | None], first_batch: int = 0) -> None:
        super().__init__()
        self._wrong, self._batches_left = wrong, first_batch

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        found = super().compare(configs, rounds, seconds, seed)
        assert isinstance(found, Comparison)
        self._batches_left -= 1
        if self._batches_left >= 0:
            return found
        wrong = [self._wrong(name) for name in found.contenders]
        first = tuple(x if w is None else w for x, w in zip(found.rounds[0], wrong, strict=True))
        return replace(found, rounds=(first, *found.rounds[1:]))


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("wrong", NO_LATENCIES)
def test_a_contender_without_a_latency_in_a_round_failed(wrong: float, batch: int) -> None:
    measurer = Compared(lambda name: wrong if name == BEST.text else None, batch)
    result = search(SPACE, DEFAULT, measurer, budget=Budget(trials=1000))
    assert result.verdict is not None
    assert result.verdict.config != BEST
    assert [m.stage for m in result.measurements if m.outcome is Outcome.ERROR] == ["comparison"]


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("wrong", NO_LATENCIES)
def test_a_vendor_without_a_latency_is_left_out(wrong: float, batch: int) -> None:
    result = search(
        SPACE, DEFAULT, Compared(lambda name: wrong if name == VENDOR else None, batch), budget=Budget(trials=1000)
    )
    assert result.verdict is not None
    assert (result.verdict.config, result.verdict.vendor_latency_us) == (BEST, None)
    assert result.comparison is not None
    assert VENDOR not in result.comparison.contenders
    assert result.vendor_left_out


@pytest.fixture(scope="module")
def space() -> RecordedSpace:
    return recorded.load(next(name for name in recorded.names() if name.startswith("softmax")))


class TestRecorded:
    @pytest.mark.parametrize("wrong", [0.0, inf, nan, -1.0])
    def test_a_space_with_such_numbers_is_replayed(self, space: RecordedSpace, wrong: float) -> None:
        text = space.best.text
        column = space.comparison.contenders.index(text)
        vendor = space.comparison.contenders.index(VENDOR)
        rounds = tuple(
            tuple(wrong if place in (column, vendor) else us for place, us in enumerate(latencies))
            for latencies in space.comparison.rounds
        )
        measurements = tuple(
            Measurement(m.config, m.outcome, (wrong,) * 10) if m.config.text == text else m for m in space.measurements
        )
        hurt = replace(space, measurements=measurements, comparison=replace(space.comparison, rounds=rounds))
        assert hurt.best.text != text
        configs = [m.config for m in hurt.measurements]
        result = search(configs, hurt.default, RecordedMeasurer(hurt), budget=Budget(trials=40))
        assert result.verdict is not None
        assert result.verdict.config.text != text
        assert result.verdict.vendor_latency_us is None

    @pytest.mark.parametrize("wrong", [0, 1e999, -1.0])
    def test_a_file_of_such_numbers_has_failed_trials(self, space: RecordedSpace, wrong: float) -> None:
        document = json.loads(files.uncompress(dumps(space), 1 << 30))
        ok = next(result for result in document["results"] if result["tuner"]["outcome"] == "ok")
        ok["times"]["runtimes"] = [wrong] * 10
        found = loads(files.compress(json.dumps(document).encode()), "a space")
        (failed,) = (m for m in found.measurements if dict(m.config) == ok["configuration"])
        assert failed.outcome is Outcome.ERROR
