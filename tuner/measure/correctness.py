"""Correctness checks of a problem's configs on the device: a single check, and the repeated check of finalists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

from tuner.errors import KernelFault
from tuner.kernels.spec import Config, Kernel, Operand, Problem
from tuner.kernels.vendors import VendorFunction
from tuner.measure import check, tensors
from tuner.measure.check import CHECK_SETTINGS, CheckSettings
from tuner.measure.clock import Run
from tuner.measure.difference import Difference, Element
from tuner.measure.loaded_problem import LoadedProblem, Values, run_of
from tuner.measure.tolerance import Tolerance, tolerances, vendor_tolerances
from tuner.measure.vendors import run_vendor
from tuner.records import Evidence


class WrongResult(Exception):
    """A config's outputs deviate by more than the tolerance, or it writes where it may not."""

    def __init__(self, text: str, error: float, tolerance: float) -> None:
        super().__init__(text)
        self.error, self.tolerance = error, tolerance


class BelowRounding(KernelFault):
    """All values of an output are so small that zeros would pass."""


class CorrectnessCheck:
    """Checks of a problem's configs against its reference, each output with a tolerance of its own.

    Args:
        on_launch: called before each repeated launch, as a sign of progress.

    Raises:
        KernelFault: vendor and reference differ beyond rounding, or write to tensors that are only read.
    """

    def __init__(
        self, loaded: LoadedProblem, on_launch: Callable[[], object], settings: CheckSettings = CHECK_SETTINGS
    ) -> None:
        self._loaded, self._on_launch, self._settings = loaded, on_launch, settings
        loaded.draw(seed=0)
        self.allowed = calibrated(loaded.kernel, loaded.problem, loaded.operands, loaded.tensors, settings)

    def check(self, run: Run, values: Values) -> tuple[Difference, Values]:
        """Run on one operand set and compare. Return the largest difference and the outputs.

        Raises:
            WrongResult: an output differs by more than its tolerance, or bytes beside the operands changed.
        """
        loaded = self._loaded
        found, outputs = check.differences_after(
            loaded.kernel, loaded.problem, loaded.operands, values, run, self._settings, self.allowed
        )
        worst = check.worst(found)
        if not worst.passes:
            output = outputs[worst.name]
            element = check.first_element(loaded.kernel, loaded.problem, values, output, worst, self._settings)
            what, hint = "the reference", rounding_hint(worst)
            if loaded.kernel.signature.captured:  # it states no rounding, and without a definition no reference
                what, hint = what if loaded.kernel.definition else "the configs that agree", ""
            text = f"deviates from {what} {worst.text}: {element.place} is {element.shown}{hint}"
            raise WrongResult(text, *worst.excess)
        self._check_guards(values, worst.tolerance)
        return worst, outputs

    def check_vendor(self, vendor: VendorFunction) -> None:
        """Run a vendor once, and compare.

        Raises:
            WrongResult: as `check`, or a tensor that is only read has changed.
        """
        loaded, values = self._loaded, self._loaded.tensors
        loaded.draw(seed=0)
        before = tensors.checksums(loaded.operands, values)

        def run() -> None:
            run_vendor(vendor, loaded.problem, loaded.operands, values)
            self._check_inputs_unchanged(values, before, next(iter(self.allowed.values())))

        self.check(run, values)

    def recheck(self, config: Config, seed: int) -> Evidence:
        """Check a config on each kind of inputs, with repeated launches on each.

        Raises:
            WrongResult: any check fails.
        """
        kinds = self._settings.inputs
        found = {
            f"{kind} {number}": self._check_repeatedly(config, seed + number, kind, relocated=number == 1)
            for number, kind in enumerate(kinds)
        }
        worst = check.worst(found)
        return Evidence(worst.error, worst.tolerance.allowed, kinds, len(kinds) * (1 + self._settings.repeats))

    def _check_repeatedly(self, config: Config, seed: int, kind: str, *, relocated: bool) -> Difference:
        """Return a config's largest difference on fresh inputs, after repeated launches that give the same result.

        The launches find other values in the outputs, and in the workspace's floats, each time.

        Args:
            relocated: write to outputs at another address.
        """
        loaded, operands = self._loaded, self._loaded.operands
        loaded.draw(seed, kind)
        values: Values = loaded.tensors
        if relocated:
            values = tensors.relocate(operands, loaded.tensors, self._settings.alignment)
        before = tensors.checksums(operands, values)
        work = loaded.workspace(config)
        run = run_of(loaded.launch(config, values, work))
        worst, outputs = self.check(run, values)
        self._check_inputs_unchanged(values, before, worst.tolerance)
        restore = tensors.restorer(operands, values)
        first = outputs if restore is not None else {name: tensor.clone() for name, tensor in outputs.items()}
        for repeat in range(self._settings.repeats):
            self._on_launch()
            tensors.poison(operands, values, repeat + 1)
            tensors.poison_floats(work, repeat + 1)
            run()
            self._check_repeated(tensors.written(operands, values), first)
            if restore is not None:
                restore()
        self._check_guards(values, worst.tolerance)
        self._check_inputs_unchanged(values, before, worst.tolerance)
        return worst

    def _check_repeated(self, outputs: Values, first: Values) -> None:
        """Raise WrongResult if a launch gives another result than the first."""
        worst = check.worst(check.repeated(outputs, first, self.allowed, self._settings))
        if not worst.passes:
            element = check.first_repeated(outputs[worst.name], first[worst.name], worst, self._settings)
            text = f"a repeated launch gives another result, {worst.text}: {element.place} is {element.shown}"
            raise WrongResult(text, *worst.excess)

    def _check_guards(self, values: Values, limit: Tolerance) -> None:
        """Raise WrongResult if bytes beside the operands have changed."""
        if beside := tensors.written_beside(self._loaded.operands, values):
            raise WrongResult(f"writes beside {', '.join(beside)}", inf, limit.allowed)

    def _check_inputs_unchanged(self, values: Values, before: Mapping[str, int], limit: Tolerance) -> None:
        """Raise WrongResult if a tensor that is only read has changed."""
        if changed := tensors.changed(values, before):
            raise WrongResult(f"writes to {', '.join(changed)}, which is only read", inf, limit.allowed)


def calibrated(
    kernel: Kernel,
    problem: Problem,
    operands: Mapping[str, Operand],
    values: Values,
    settings: CheckSettings = CHECK_SETTINGS,
) -> dict[str, Tolerance]:
    """Return the tolerance of each output, from the error of the vendor's implementation on drawn inputs.

    Raises:
        KernelFault: vendor and reference differ beyond rounding, or write to tensors that are only read.
        BelowRounding: all values of an output are so small that zeros would pass.
    """
    allowed, vendor = tolerances(kernel, problem), kernel.vendor
    before = tensors.checksums(operands, values, ("in", "inout"))
    found, outputs = check.differences_after(
        kernel,
        problem,
        operands,
        values,
        lambda: None if vendor is None else run_vendor(vendor, problem, operands, values),
        settings,
        vendor_tolerances(kernel, problem),
    )
    if changed := tensors.changed(values, before):
        fault = f"vendor and reference only read {changed[0]}, and one of them changes it; copy it there"
        raise KernelFault(fault, getattr(vendor or kernel.reference, "place", ""))
    for name, difference in found.items():
        if not difference.has_finite:
            place = getattr(kernel.reference, "place", "")
            raise KernelFault(f"reference has finite values, and none in {name}; correct it, or fill its inputs", place)
        strict = replace(difference, tolerance=allowed[name].at_ceiling())
        if strict.hides_zeros:
            fault = (
                f"reference has values above rounding, and none in {name}; let `fill` of its inputs make them larger"
            )
            raise BelowRounding(fault, getattr(kernel.reference, "place", ""))
        if vendor is not None and not difference.passes:
            element = check.first_element(kernel, problem, values, outputs[name], difference, settings)
            raise KernelFault(_disagreement(difference, element), getattr(vendor, "place", ""))
    if vendor is None:
        alone = {name: limit.without_vendor() for name, limit in allowed.items()}
        # Without a definition the reference is another config, which rounds as much.
        return alone if kernel.definition else {name: limit.between_two() for name, limit in alone.items()}
    errors = {name: replace(found[name], tolerance=limit).error for name, limit in allowed.items()}
    return {name: limit.beside(errors[name]) for name, limit in allowed.items()}


def rounding_hint(difference: Difference) -> str:
    """Return how a kernel states coarser rounding, if an error might be that; else an empty text."""
    if difference.may_be_quantized:
        return "; if off by one is rounding, state `rounding`"
    return "; if the kernel rounds more coarsely, state `rounding`" if difference.may_be_rounding else ""


def _disagreement(difference: Difference, element: Element) -> str:
    """Return the text of a vendor and a reference that differ."""
    way_out = "correct the wrong one, or state `rounding` if one rounds more coarsely"
    if difference.tolerance.is_absolute:
        way_out = "correct the wrong one, state `rounding` if off by one is rounding, or let `fill` draw no ties"
    if element.is_unwritten:
        way_out = "let vendor write to its operands, or correct the wrong one"
    elif difference.tolerance.is_exact:
        way_out = "correct the wrong one, or leave out exact=True"
    return (
        f"vendor and reference differ by more than rounding: {element.place} is {element.got:.7g} by vendor and "
        f"{element.expected:.7g} by reference (off {difference.text}); {way_out}"
    )
