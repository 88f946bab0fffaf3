"""What a search needs of whatever measures: a GPU, a recording, a script in a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tuner.kernels.spec import Config
from tuner.records import Comparison, Evidence, Measurement


class Measurer(Protocol):
    """Measures configs of one problem, several on their way at once.

    In calling order: `submit` up to `capacity` configs, take them from `next` as they end, submit more; `settle`; then
    `recheck` and `duel` the finalists; `close`. A `duel` may also come before `settle`, with nothing on its way.
    """

    @property
    def capacity(self) -> int:
        """Configs worth having on their way at once."""

    @property
    def waits_for_device(self) -> bool:
        """Whether another measurer has the device, before which nothing is measured here; what compiles, does."""

    def submit(self, config: Config) -> None:
        """Takes a config on."""

    def next(self, timeout_s: float) -> Measurement | None:
        """The next config that ended, in whatever order they do; None if none did in time.

        Raises:
            MeasureError: the machinery broke and cannot be mended.
        """

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        """Gives up what is still on its way; what ended meanwhile, or ends in time."""

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        """Of each config evidence that it is right, over and over, on inputs of several kinds; its failure if not."""

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        """Up to so many interleaved rounds between the configs and the vendor's kernel, begun within so many seconds.

        Where a config fails, its failed measurement.
        """

    def close(self) -> None:
        """Lets go of what it holds. Nothing may be called after."""
