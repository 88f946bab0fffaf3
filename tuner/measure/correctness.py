"""Correctness checks of a problem's configs on the device: a single check, and the repeated check of finalists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isfinite

from tuner.errors import MeasureError
from tuner.kernels.spec import Config
from tuner.measure import check, tensors
from tuner.measure.check import CHECK_SETTINGS, CheckSettings
from tuner.measure.clock import Run
from tuner.measure.loaded_problem import LoadedProblem, Values, run_of
from tuner.records import Evidence


class WrongResult(Exception):
    """A config's outputs deviate by more than the tolerance, or it writes where it may not."""

    def __init__(self, text: str, error: float, tolerance: float) -> None:
        super().__init__(text)
        self.error, self.tolerance = error, tolerance


class CorrectnessCheck:
    """Checks of a problem's configs against its reference, with a tolerance from the vendor's own error.

    Args:
        on_launch: called before each repeated launch, as a sign of progress.

    Raises:
        MeasureError: the vendor's result is wrong.
    """

    def __init__(
        self, loaded: LoadedProblem, on_launch: Callable[[], object], settings: CheckSettings = CHECK_SETTINGS
    ) -> None:
        self._loaded, self._on_launch, self._settings = loaded, on_launch, settings
        loaded.draw(seed=0)
        vendor_error, _ = self._error_after(loaded.vendor(loaded.tensors), loaded.tensors)
        if not isfinite(vendor_error):
            written = ", ".join(tensors.written(loaded.operands, loaded.tensors))
            raise MeasureError(
                f"the vendor's result of {loaded.kernel.op} must match the reference; it is wrong, "
                f"or is not written to {written}"
            )
        self.tolerance = check.tolerance(loaded.kernel, loaded.problem, vendor_error)

    def check(self, run: Run, values: Values) -> tuple[float, Values]:
        """Run on one operand set and compare. Return the error and the outputs.

        Raises:
            WrongResult: the error exceeds the tolerance, or bytes beside the outputs changed.
        """
        error, outputs = self._error_after(run, values)
        if not error <= self.tolerance:
            text = f"deviates from the reference by {error:.3g} of its largest value; {self.tolerance:.3g} is allowed"
            raise WrongResult(text, error, self.tolerance)
        if not tensors.guards_intact(self._loaded.operands, values):
            raise WrongResult("writes beside its outputs", inf, self.tolerance)
        return error, outputs

    def recheck(self, config: Config, seed: int) -> Evidence:
        """Check a config on each kind of inputs, with repeated launches on each.

        Raises:
            WrongResult: any check fails.
        """
        kinds = self._settings.inputs
        errors = [
            self._check_repeatedly(config, seed + number, kind, relocated=number == 1)
            for number, kind in enumerate(kinds)
        ]
        return Evidence(max(errors), self.tolerance, kinds, len(kinds) * (1 + self._settings.repeats))

    def _check_repeatedly(self, config: Config, seed: int, kind: str, *, relocated: bool) -> float:
        """Return a config's error on fresh inputs, after repeated launches that must give the same result.

        Args:
            relocated: write to outputs at another address.
        """
        loaded, operands = self._loaded, self._loaded.operands
        loaded.draw(seed, kind)
        values: Values = loaded.tensors
        if relocated:
            values = tensors.relocate(operands, loaded.tensors, self._settings.alignment)
        before = tensors.checksums(operands, values)
        run = run_of(*loaded.launches(config, values))
        error, outputs = self.check(run, values)
        self._check_inputs_unchanged(values, before)
        restore = tensors.restorer(operands, values)
        first = outputs if restore is not None else {name: tensor.clone() for name, tensor in outputs.items()}
        for _ in range(self._settings.repeats):
            self._on_launch()
            tensors.poison(operands, values)
            run()
            deviation = check.deviation(loaded.kernel, tensors.written(operands, values), first, self._settings)
            if not deviation <= 2 * self.tolerance:
                text = f"a repeated launch gives another result, by {deviation:.3g} of its largest value"
                raise WrongResult(text, deviation, self.tolerance)
            if restore is not None:
                restore()
        self._check_inputs_unchanged(values, before)
        return error

    def _check_inputs_unchanged(self, values: Values, before: Mapping[str, int]) -> None:
        """Raise WrongResult if a tensor that is only read has changed."""
        after = tensors.checksums(self._loaded.operands, values)
        changed = [name for name, checksum in after.items() if checksum != before[name]]
        if changed:
            raise WrongResult(f"writes to {', '.join(changed)}, which is only read", inf, self.tolerance)

    def _error_after(self, run: Run, values: Values) -> tuple[float, Values]:
        """Return the error of the outputs of `run`, and the outputs."""
        loaded = self._loaded
        return check.error_after(loaded.kernel, loaded.problem, loaded.operands, values, run, self._settings)
