"""What holds for whatever measures: inherited by the tests of scripts, of recorded spaces and of a real card."""

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
    """A space, its default, and what measures it."""

    space: Sequence[Config]
    default: Config | None
    measurer: Callable[[], Measurer]


class SearchContract:
    """A subclass gives the fixture `subject`."""

    @pytest.mark.parametrize("sampler", SAMPLERS)
    def test_a_search_measures_each_config_once_and_answers(self, subject: Subject, sampler: str) -> None:
        told: list[Measurement] = []
        measurer = subject.measurer()
        try:
            result = search(
                subject.space,
                subject.default,
                measurer,
                sampler=sampler,
                budget=Budget(trials=30),
                on_trial=told.append,
            )
        finally:
            measurer.close()
        assert result.stopped == "trials"
        assert len({measurement.config for measurement in told}) == len(told) == 30
        assert [m.samples for m in told] == [m.samples for m in result.measurements]  # a re-check may raise an error
        assert subject.default in {measurement.config for measurement in told}
        assert result.verdict is not None
        assert result.comparison is not None
        assert {result.verdict.config.text, VENDOR} <= set(result.comparison.contenders)
        assert result.verdict.speedup is not None
        assert result.verdict.speedup >= 1
