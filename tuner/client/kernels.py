"""Kernels as the client uses them: no error in their code reaches a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from tuner import catalog
from tuner.client.warn import WarnOnce
from tuner.errors import KernelFault, TunerError, UsageError
from tuner.kernels.spec import Config, Kernel, Problem
from tuner.lookup.neighbours import fits
from tuner.lookup.offered import not_offered_by
from tuner.measure import device as cards
from tuner.records import StoredAnswer
from tuner.records.signatures import checked_config

T = TypeVar("T")
Named = str | os.PathLike[str] | Kernel
"""A kernel in a query: the name of an op, the path of a kernel file, or the kernel itself."""


@dataclass(frozen=True)
class Known:
    """The kernel in a query, as far as it is known."""

    op: str
    """Empty if the kernel is a file that cannot be loaded."""
    kernel: Kernel | None
    """None if its code cannot be loaded here."""
    reference: str = ""
    """Name or file by which a command finds the kernel; empty: the op."""


class GuardedKernels:
    """Kernels by op or file. An error that a kernel's code raises is logged once.

    Args:
        warn: called with each warning.
        limit: number of ops whose kernels are kept.
    """

    def __init__(self, warn: WarnOnce, limit: int) -> None:
        self._warn, self._limit = warn, limit
        self._load = lru_cache(limit)(self._load_now)
        self.sources: dict[str, str] = {}
        """Source hashes of the kernels that were looked up, by op."""

    def load(self, op: str) -> Kernel | None:
        """Return the kernel of an op, or None if it is unknown or cannot be loaded here."""
        return self._load(op)

    def known(self, named: Named) -> Known:
        """Return the kernel that a query names. A file that cannot be loaded is logged."""
        if isinstance(named, Kernel):
            return Known(named.op, named, catalog.reference_of(named))
        reference = named if isinstance(named, str) else os.fspath(named)
        if not reference.endswith(".py"):
            return Known(reference, self._load(reference))
        kernel = self._load(reference)
        return Known("" if kernel is None else kernel.op, kernel, reference)

    def note_source(self, op: str, source: str | None) -> None:
        """Keep the source hash of a kernel that is looked up; None is unknown."""
        if source is not None and (op in self.sources or len(self.sources) < self._limit):
            self.sources[op] = source

    def clear(self) -> None:
        """Forget the loaded kernels."""
        self._load.cache_clear()
        self.sources.clear()

    def default(self, kernel: Kernel | None, problem: Problem, device: int | str) -> Config | None:
        """Return the kernel's default, or None without a kernel or without a GPU of that index."""
        if kernel is None or isinstance(device, str):
            return None
        try:
            return kernel.default_config(problem, cards.describe(device).limits)
        except KernelFault as error:
            self._warn(f"{problem.text}: the default cannot be computed: {error}")
            return None
        except TunerError:
            return None
        except Exception as error:  # noqa: BLE001  the code of a kernel's author must not stop a model
            self._warn(f"{problem.text}: the default cannot be computed: {type(error).__name__}: {error}")
            return None

    def checked(self, kernel: Kernel | None, stored: StoredAnswer, device: int | str) -> Config:
        """Return a stored config with the kernel's knobs; without a kernel the config as it is.

        The config may be of an older kernel, of a larger card, or invalid.

        Raises:
            UsageError: it has other knobs, or is not valid for the problem on the GPU of that index.
        """
        config, tuned_for = stored.answer.config, stored.answer.problem
        if kernel is None:
            return config
        try:
            config = checked_config(kernel.signature, config)
        except UsageError as error:
            raise UsageError(f"the stored config has the knobs of another kernel: {error}") from error
        if isinstance(device, int) and (refused := self._refusal(kernel, tuned_for, config, device)):
            raise UsageError(f"the stored config {config.text} is not valid on this card: refused by {refused}")
        return config

    def refused(self, kernel: Kernel | None, stored: StoredAnswer) -> str:
        """Return what the kernel lacks of an answer's config; empty without a kernel."""
        return "" if kernel is None else not_offered_by(kernel, stored)

    def fits(self, kernel: Kernel | None, problem: Problem, stored: StoredAnswer) -> bool:
        """Return whether the config of another problem's answer may be launched; without a kernel it may not."""
        return kernel is not None and self._tried(
            lambda: fits(kernel, problem, stored), problem, stored.answer.config, otherwise=False
        )

    def _refusal(self, kernel: Kernel, problem: Problem, config: Config, device: int) -> str:
        """Return the constraint that refuses a config on the GPU of that index; empty if the config is feasible."""
        limits = cards.describe(device).limits
        return self._tried(
            lambda: str(kernel.valid.refusal(problem, config, limits) or ""),
            problem,
            config,
            otherwise="a constraint that raises an error",
        )

    def _tried(self, rule: Callable[[], T], problem: Problem, config: Config, *, otherwise: T) -> T:
        try:
            return rule()
        except KernelFault as error:
            self._warn(f"{problem.text}: checking {config.text} fails: {error}")
            return otherwise
        except Exception as error:  # noqa: BLE001  as above; the rule was not written for such values
            self._warn(f"{problem.text}: checking {config.text} raises {type(error).__name__}: {error}")
            return otherwise

    def _load_now(self, op: str) -> Kernel | None:
        try:
            return catalog.resolve(op)
        except TunerError as error:
            if op.endswith(".py"):
                self._warn(f"{op}: no config is given, since {error}")
            return None
        except Exception as error:  # noqa: BLE001  as above; loading runs the author's code
            self._warn(f"the code of {op} cannot be loaded: {type(error).__name__}: {error}")
            return None
