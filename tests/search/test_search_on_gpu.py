"""The search contract on a real card, with a kernel of four lines."""

from __future__ import annotations

import pytest
from contracts import SearchContract, Subject
from helpers import toy

from tuner import catalog
from tuner.measure.device import describe
from tuner.measure.gpu import GpuMeasurer
from tuner.search.space import feasible

pytestmark = pytest.mark.gpu


class TestSearchOnGpu(SearchContract):
    @pytest.fixture(params=["softmax", toy("double")], ids=["softmax", "double"])
    def subject(self, request: pytest.FixtureRequest) -> Subject:
        kernel = catalog.resolve(request.param)
        first = kernel.signature.dims[0].name
        problem = kernel.signature.problem({first: 1024 if kernel.op == "softmax" else 1 << 24})
        limits = describe(0).limits
        space = list(feasible(kernel, problem, limits))
        return Subject(
            space, kernel.default_config(problem, limits), lambda: GpuMeasurer(request.param, problem, limits)
        )
