"""Contract of measurers: tests that scripted, recorded and real measurers inherit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import VENDOR, Measurement
from tuner.search import SAMPLERS, Budget, search


@dataclass(frozen=True)
class Subject:
    """Feasible configs, their default, and the maker of a measurer of them."""

    space: Sequence[Config]
    default: Config | None
    measurer: Callable[[], Measurer]


class SearchContract:
    """Tests of a search; a subclass defines the fixture `subject`."""

    @pytest.mark.parametrize("sampler", SAMPLERS)
    def test_a_search_measures_each_config_once_and_answers(self, subject: Subject, sampler: str) -> None:
        measured: list[Measurement] = []
        measurer = subject.measurer()
        try:
            result = search(
                subject.space,
                subject.default,
                measurer,
                sampler=sampler,
                budget=Budget(trials=30),
                on_trial=measured.append,
            )
        finally:
            measurer.close()
        assert result.stopped == "trials"
        assert len({measurement.config for measurement in measured}) == len(measured) == 30
        assert [m.samples for m in measured] == [
            m.samples for m in result.measurements
        ]  # a re-check may raise an error
        assert subject.default in {measurement.config for measurement in measured}
        assert result.verdict is not None
        assert result.comparison is not None
        assert {result.verdict.config.text, VENDOR} <= set(result.comparison.contenders)
        assert result.verdict.speedup is not None
        assert result.verdict.speedup >= 1
