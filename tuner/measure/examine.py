"""Examination of configs on the device, for a kernel whose written tensors and right results are unknown.

Running a config on tensors of known contents shows what it writes and reads. A tensor is written if its bytes change.
It has the role `out` if its earlier contents make no difference to the result, else `inout`. An element that is not
written keeps its earlier contents, so `out` tensors are written in full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Any, Literal

import torch

from tuner.kernels.spec import Config, Operand
from tuner.measure import check, tensors
from tuner.measure.check import CHECK_SETTINGS, CheckSettings
from tuner.measure.correctness import WrongResult
from tuner.measure.loaded_problem import LoadedProblem, Values, run_of
from tuner.measure.messages import FILL, Examine, Ran, Stage
from tuner.measure.tensors import bits
from tuner.measure.tolerance import tolerances


@dataclass(frozen=True)
class ExaminationSettings:
    """Extent of an examination."""

    repeats: int = 16
    """Launches of each config on equal contents. Source: as `CheckSettings.repeats`."""
    repeats_s: float = 1.0
    """Time after which no further launch begins, in s; at least three run. Source: chosen, for slow configs."""
    fills: int = 3
    """Number of other contents tried in each written tensor: NaN or a pattern, the highest value, and the lowest."""
    kept: int = 4
    """Number of representatives whose outputs stay in the memory of the card; others run again. Source: chosen."""


_LEAST_REPEATS = 3
_SKIPPED = Operand((), "fp32", "out")
"""Placeholder of an operand that is not drawn."""
EXAMINATION_SETTINGS = ExaminationSettings()


class Examination:
    """Examinations of the configs of one problem, on equal inputs.

    Args:
        tell: called with each stage.
    """

    def __init__(
        self,
        loaded: LoadedProblem,
        tell: Callable[[Stage], object],
        settings: ExaminationSettings = EXAMINATION_SETTINGS,
        checks: CheckSettings = CHECK_SETTINGS,
    ) -> None:
        self._loaded, self._tell, self._settings, self._checks = loaded, tell, settings, checks
        limits = tolerances(loaded.kernel, loaded.problem)
        self._allowed = {name: limit.without_vendor() for name, limit in limits.items()}
        """Tolerance of each tensor that may be written."""
        self._initial: dict[str, torch.Tensor] = {}
        """Drawn contents of the tensors that are written. Those of others are drawn again when they are needed, since
        a training process may leave little memory."""
        self._drawn: tuple[int, tuple[str, ...]] | None = None
        self._outputs: OrderedDict[Config, Values] = OrderedDict()
        self.stage = ""
        """Name of the present stage."""

    def examine(self, request: Examine) -> Ran:
        """Run a config. Return its roles, and the representative that it agrees with.

        Raises:
            WrongResult: it changes no tensor, writes beside one, or a repeated launch gives another result.
        """
        config = request.config
        self._draw(request)
        outputs = self._run(config)
        self._check(config, outputs)
        roles = self._roles(request, outputs)
        agrees, differs = self._compared(request, outputs)
        self._keep(config, outputs)
        return Ran(config, roles, agrees, differs)

    def _draw(self, request: Examine) -> None:
        """Draw the contents that each config starts from, unless they are drawn."""
        drawn = (request.seed, request.reset)
        if self._drawn != drawn:
            self._outputs.clear()
            self._initial.clear()
            self._drawn = drawn

    def _fill(self, seed: int, reset: tuple[str, ...]) -> None:
        """Fill the tensors with contents that depend only on the seed."""
        self._loaded.draw(seed)
        for name in self._allowed:
            if name in reset:
                self._loaded.tensors[name].zero_()

    def _alone(self, name: str, seed: int) -> torch.Tensor:
        """Return a new tensor with the contents that `_fill` gives the tensor of this name."""
        assert self._drawn is not None
        operands = {each: operand if each == name else _SKIPPED for each, operand in self._loaded.operands.items()}
        made = tensors.allocate({name: operands[name]}, self._loaded.device)
        tensors.draw(operands, made, seed)
        return made[name].zero_() if name in self._drawn[1] and name in self._allowed else made[name]

    def _run(self, config: Config) -> Values:
        """Run a config on the drawn contents. Return copies of the tensors that it writes.

        A launch on other inputs comes first. It shows tensors whose drawn contents equal the result by chance, and
        results that depend on an earlier launch.
        """
        assert self._drawn is not None
        self._enter("launch", config)
        seed, reset = self._drawn
        written: set[str] = set()
        for each in (seed + 1, seed):
            self._fill(each, reset)
            self._launch(config)
            written.update(self._changed(each))
        return {name: tensor.clone() for name, tensor in self._loaded.tensors.items() if name in written}

    def _check(self, config: Config, outputs: Values) -> None:
        """Raise WrongResult if a config changes nothing, writes to shared elements, or repeats with another result."""
        if not outputs:
            raise WrongResult("changes none of its tensors", inf, 0.0)
        if shared := [name for name in outputs if name not in self._allowed]:
            raise WrongResult(f"writes to {', '.join(shared)}, whose elements share memory", inf, 0.0)
        for name, output in outputs.items():
            if output.numel() and output.is_floating_point() and not bool(output.float().isfinite().any()):
                raise WrongResult(f"has no finite value in {name}", inf, self._allowed[name].allowed)
        end = monotonic() + self._settings.repeats_s
        for repeat in range(self._settings.repeats):
            if repeat >= _LEAST_REPEATS and monotonic() >= end:
                break
            self._enter("check")
            self._restore(outputs)
            self._launch(config)
            if text := self._first_difference(self._written(outputs), outputs):
                raise WrongResult(f"a repeated launch gives another result: {text}", inf, 0.0)
        self._restore(outputs)
        assert self._drawn is not None
        if also := self._changed(self._drawn[0]):
            raise WrongResult(f"writes to {', '.join(also)} in some launches only", inf, 0.0)

    def _roles(self, request: Examine, outputs: Values) -> dict[str, Literal["in", "out", "inout"]]:
        """Return the role of each tensor, found by launches on other contents of the written ones."""
        roles: dict[str, Literal["in", "out", "inout"]] = dict.fromkeys(self._loaded.tensors, "in")
        for name in outputs:
            known = name in request.reset or name in request.read
            roles[name] = "inout" if known or self._depends_on(name, request.config, outputs) else "out"
        return roles

    def _depends_on(self, name: str, config: Config, outputs: Values) -> bool:
        """Return whether the outputs depend on what a tensor held before."""
        as_output = {name: replace(self._loaded.operands[name], role="out")}
        for turn in range(self._settings.fills):
            self._enter(FILL + name)
            self._restore(outputs)
            tensors.poison(as_output, self._loaded.tensors, turn)
            self._launch(config)
            if self._first_difference(self._written(outputs), outputs):
                return True
        return False

    def _compared(self, request: Examine, outputs: Values) -> tuple[Config | None, dict[Config, str]]:
        """Return the first representative that has the same outputs, and the differences from those before."""
        differs: dict[Config, str] = {}
        for config in request.representatives:
            first = self._outputs_of(config)
            self._enter("check")
            if not (text := self._first_difference(outputs, first)):
                return config, differs
            differs[config] = text
        return None, differs

    def _outputs_of(self, config: Config) -> Values:
        """Return the outputs of a representative; run it if they are not kept."""
        if config not in self._outputs:
            self._keep(config, self._run(config))
        self._outputs.move_to_end(config)
        return self._outputs[config]

    def _keep(self, config: Config, outputs: Values) -> None:
        self._outputs[config] = outputs
        while len(self._outputs) > self._settings.kept:
            self._outputs.popitem(last=False)

    def _first_difference(self, outputs: Values, first: Values) -> str:
        """Return the first element that differs by more than is allowed; empty if there is none.

        A tensor that one side does not write is compared with its drawn contents.
        """
        names = dict.fromkeys((*first, *outputs))
        got, want = (
            {name: side[name] if name in side else self._before(name) for name in names} for side in (outputs, first)
        )
        found = check.worst(check.repeated(got, want, self._allowed, self._checks))
        if found.passes:
            return ""
        element = check.first_repeated(got[found.name], want[found.name], found, self._checks)
        return f"{element.place} is {element.shown}"

    def _written(self, outputs: Values) -> Values:
        return {name: self._loaded.tensors[name] for name in outputs}

    def _changed(self, seed: int) -> list[str]:
        """Return the names of the tensors whose bytes are not those that were drawn."""
        now = self._loaded.tensors
        return [name for name in now if not torch.equal(bits(now[name]), bits(self._alone(name, seed)))]

    def _before(self, name: str) -> torch.Tensor:
        """Return the drawn contents of a tensor that some config writes."""
        if name not in self._initial:
            assert self._drawn is not None
            self._initial[name] = self._alone(name, self._drawn[0])
        return self._initial[name]

    def _restore(self, names: Mapping[str, Any]) -> None:
        """Give these tensors the drawn contents."""
        for name in names:
            self._loaded.tensors[name].copy_(self._before(name))

    def _launch(self, config: Config) -> None:
        """Run a config on a new workspace.

        Raises:
            WrongResult: bytes outside of the tensors have changed.
        """
        loaded = self._loaded
        tensors.poison(loaded.operands, loaded.tensors)  # none has the role out, so it resets the guards only
        (launches,) = loaded.launches(config, loaded.tensors)
        run_of(launches)()
        loaded.clock.wait()
        if beside := tensors.written_beside(loaded.operands, loaded.tensors):
            raise WrongResult(f"writes beside {', '.join(beside)}", inf, 0.0)

    def _enter(self, stage: str, config: Config | None = None) -> None:
        self.stage = stage
        self._tell(Stage(stage, config))
