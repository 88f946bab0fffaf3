"""A measurer that follows a script: latencies by formula, noise and drift by seed, failures by config."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import product

from tuner.kernels.spec import Config, Dim, Knob, Signature
from tuner.records import VENDOR, Comparison, Evidence, Measurement, Outcome

TOY = Signature(
    op="toy",
    dims=(Dim("N"),),
    dtypes=("fp32",),
    knobs=(
        Knob("A", (1, 2, 4, 8, 16)),
        Knob("B", (1, 2, 3, 4)),
        Knob("num_warps", (1, 2, 4)),
        Knob("num_stages", (1,)),
    ),
)
SPACE = [
    TOY.config(dict(zip(("A", "B", "num_warps", "num_stages"), choice, strict=True)))
    for choice in product((1, 2, 4, 8, 16), (1, 2, 3, 4), (1, 2, 4), (1,))
]
DEFAULT = TOY.config({"A": 4, "B": 2, "num_warps": 2, "num_stages": 1})
BEST = TOY.config({"A": 8, "B": 3, "num_warps": 4, "num_stages": 1})


def bowl(config: Config) -> float:
    """Return 100 us for `BEST`, and more for each knob that differs."""
    distance = abs(config["A"] - 8) / 8 + abs(config["B"] - 3) / 2 + abs(config["num_warps"] - 4) / 4
    return 100.0 * (1 + float(distance))


def only(config: Config, outcome: Outcome) -> Callable[[Config], Outcome]:
    """Return an outcome by config: this one ends so, all others are ok."""
    return lambda other: outcome if other == config else Outcome.OK


class ScriptedMeasurer:
    """Measurements by formula, in the order of submission."""

    def __init__(
        self,
        latency_us: Callable[[Config], float] = bowl,
        *,
        noise: float = 0.0,
        seed: int = 0,
        outcome: Callable[[Config], Outcome] = lambda config: Outcome.OK,
        fails_recheck: Sequence[Config] = (),
        fails_in_comparison: Sequence[Config] = (),
        luck: Callable[[Config], float] = lambda config: 1.0,
        vendor_us: float = 120.0,
        capacity: int = 4,
    ) -> None:
        self._latency, self._noise, self._random = latency_us, noise, random.Random(seed)
        self._outcome, self._luck = outcome, luck
        self._fails_in_comparison = set(fails_in_comparison)
        self._fails_recheck, self._vendor_us, self._capacity = set(fails_recheck), vendor_us, capacity
        self._waiting: deque[Config] = deque()
        self.submitted: list[Config] = []
        self.most_on_the_way = 0
        self.never_answers = False
        self.closed = False

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def waits_for_device(self) -> bool:
        return False

    @property
    def measured(self) -> int:
        """Number of configs that were measured."""
        return len(self.submitted) - len(self._waiting)

    def submit(self, config: Config) -> None:
        self.submitted.append(config)
        self._waiting.append(config)
        self.most_on_the_way = max(self.most_on_the_way, len(self._waiting))

    def next(self, timeout_s: float) -> Measurement | None:
        if self.never_answers or not self._waiting:
            return None
        config = self._waiting.popleft()
        outcome = self._outcome(config)
        if outcome is not Outcome.OK:
            return Measurement(config, outcome, stage="check", error="as scripted")
        samples = tuple(self._once(config) * self._luck(config) for _ in range(12))
        return Measurement(
            config, Outcome.OK, samples, shared_bytes=1024 * int(str(config.get("A", 1))), max_error=0.0, tolerance=0.1
        )

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        self._waiting.clear()
        return ()

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        return [
            Measurement(config, Outcome.WRONG_RESULT, stage="check", error="wrong on other inputs")
            if config in self._fails_recheck
            else Evidence(0.05, 0.1, ("normal", "special"), 34)
            for config in configs
        ]

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        for config in configs:
            if config in self._fails_in_comparison:
                return Measurement(config, Outcome.CRASHED, stage="comparison", error="as scripted")
        names = (*(config.text for config in configs), VENDOR)
        return Comparison(
            names,
            tuple(
                (*(self._once(config) for config in configs), self._vendor_us * self._jitter()) for _ in range(rounds)
            ),
        )

    def close(self) -> None:
        self.closed = True

    def _once(self, config: Config) -> float:
        return self._latency(config) * self._jitter()

    def _jitter(self) -> float:
        return 1 + self._noise * self._random.gauss(0, 1)
