"""The protocol between a search and whatever measures configs: a GPU, a recorded space, or a test's script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tuner.kernels.spec import Config
from tuner.records import Comparison, Evidence, Measurement


class Measurer(Protocol):
    """Measurements of configs of one problem, with several configs in progress at once.

    Calling order:

    1. `submit` up to `capacity` configs, collect results with `next`, and submit more.
    2. `settle` once. Nothing is submitted afterwards.
    3. `compare` the finalists and `recheck` them, in any order, as often as needed.
    4. `close` once. Nothing is called afterwards.

    `compare` may also be called before `settle`, while no config is in progress.

    Latencies are in us, time limits in s. A config that fails is a `Measurement` with a failed outcome, never an
    exception. Each method may raise `MeasureError` if a worker process or the compile pool cannot be kept alive; the
    measurer is then only good for `close`.
    """

    @property
    def capacity(self) -> int:
        """Number of configs that keep compilers and device busy."""

    @property
    def waits_for_device(self) -> bool:
        """True while another measurer holds the device: submitted configs compile, and none is measured."""

    def submit(self, config: Config) -> None:
        """Queue a config for measuring. Does not block."""

    def next(self, timeout_s: float) -> Measurement | None:
        """Return the next finished measurement, or None if none finishes in time.

        Results come in the order in which configs finish, each config once.
        """

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        """Drop the configs that wait, and return the measurements that finish within the time limit.

        A config without a measurement was not measured: it neither succeeded nor failed.
        """

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        """Time configs and vendors in interleaved rounds: each round times each contender once, in random order.

        Args:
            configs: contenders besides the vendors.
            rounds: largest number of rounds. Fewer are returned if time is up, none if a recording has no more.
            seconds: time after which no further round begins.
            seed: of the inputs and of the orders.

        Returns:
            The rounds, or the failed measurement of the first config that fails.
        """

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        """Check each config on several kinds of inputs, repeatedly on each.

        Returns:
            For each config, in order: the evidence that it is correct, or its failed measurement.
        """

    def close(self) -> None:
        """Release processes and device."""
