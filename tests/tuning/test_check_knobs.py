"""The check of knobs: each choice is compiled, and a knob that changes no launch is a warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TOYS, toy

from tuner import catalog, recorded
from tuner.search.space import FeasibleSpace
from tuner.tuning.check_kernel import DEVICE, CheckKernelSettings, check_kernel
from tuner.tuning.check_knobs import CheckKnobsSettings, compile_steps, unused_steps
from tuner.tuning.check_report import KernelReport, Step

pytestmark = pytest.mark.usefixtures("forked_helpers")
CARD = recorded.devices()[DEVICE]
DOUBLE = (TOYS / "double.py").read_text()
NUM_WARPS = 'Knob("num_warps", (1, 2, 4, 8, 16)),'
NO_OTHERS = CheckKnobsSettings(configs=0)


def checked(folder: Path, knobs: CheckKnobsSettings = NO_OTHERS, **replaced: str) -> KernelReport:
    """Check the smallest kernel with lines replaced: `old=new`, where each key is in `LINES`."""
    text = DOUBLE
    for line, new in replaced.items():
        assert LINES[line] in text
        text = text.replace(LINES[line], new)
    file = folder / "double.py"
    file.write_text(text)
    return check_kernel(str(file), {}, settings=CheckKernelSettings(knobs=knobs, small_sizes=(3,)))


LINES = {
    "choices": "(64, 128, 256, 512, 1024, 2048, 4096)",
    "num_warps": NUM_WARPS,
    "default": '"BLOCK": 256, ',
    "launch": '{"BLOCK": block, **warps}',
}


def texts(report: KernelReport, name: str) -> dict[str, str]:
    return {step.subject: step.text for step in report.steps if step.name == name}


def warned(report: KernelReport) -> list[Step]:
    return [step for step in report.steps if step.outcome == "warned"]


def test_each_choice_is_compiled(tmp_path: Path) -> None:
    report = checked(tmp_path)
    assert report.error is None
    assert not warned(report)
    found = texts(report, "compile")
    assert found["BLOCK"] == "7 of 7 choices compile"
    assert found["num_warps"] == "5 of 5 choices compile"


def test_a_choice_that_does_not_compile_is_named_with_its_line(tmp_path: Path) -> None:
    error = checked(tmp_path, choices="(64, 128, 256, 300)").error
    assert error is not None
    assert error.name == "compile"
    assert error.subject == "BLOCK=300 num_stages=1 num_warps=4"
    assert "power of 2" in error.text
    assert "double.py line 11" in error.text


def test_a_choice_that_no_feasible_config_has_is_named(tmp_path: Path) -> None:
    valid = '"num_stages": 1},\n    valid=lambda problem, config, limits: config["BLOCK"] <= 512,\n'
    text = DOUBLE.replace('"num_stages": 1},\n)', valid + ")")
    assert text != DOUBLE
    (tmp_path / "double.py").write_text(text)
    report = check_kernel(
        str(tmp_path / "double.py"), {}, settings=CheckKernelSettings(knobs=NO_OTHERS, small_sizes=(3,))
    )
    assert report.error is None
    expected = "4 of 7 choices compile; not feasible for this problem: 1024, 2048, 4096"
    assert texts(report, "compile")["BLOCK"] == expected


def test_choices_that_are_feasible_only_beside_others_are_compiled_there(tmp_path: Path) -> None:
    """BLOCK=4096 is feasible with 16 warps, and the default has 4."""
    rule = 'config["BLOCK"] < 4096 or config["num_warps"] == 16'
    text = DOUBLE.replace(
        '"num_stages": 1},\n)', f'"num_stages": 1}},\n    valid=lambda problem, config, limits: {rule},\n)'
    )
    (tmp_path / "double.py").write_text(text)
    report = check_kernel(
        str(tmp_path / "double.py"), {}, settings=CheckKernelSettings(knobs=NO_OTHERS, small_sizes=(3,))
    )
    assert texts(report, "compile")["BLOCK"] == "7 of 7 choices compile"


def test_what_is_not_compiled_in_time_is_named(tmp_path: Path) -> None:
    report = checked(tmp_path, CheckKnobsSettings(configs=0, choices_s=0.0))
    assert report.error is None
    late = "1 of 5 choices compile; not compiled within 0 s: 1, 2, 8, 16"
    assert texts(report, "compile")["num_warps"] == late


def test_a_knob_that_launch_does_not_pass_on_is_a_warning(tmp_path: Path) -> None:
    report = checked(
        tmp_path, num_warps=f'Knob("GROUP", (1, 2, 4)),\n            {NUM_WARPS}', default='"BLOCK": 256, "GROUP": 1, '
    )
    assert report.error is None
    (step,) = warned(report)
    assert (step.name, step.subject) == ("knob", "GROUP")
    assert step.text.startswith(str(tmp_path / "double.py"))
    assert step.text.endswith("no choice of GROUP changes a launch; pass it on in launch, or leave the knob out")


def test_a_knob_that_matters_in_one_variant_is_none(tmp_path: Path) -> None:
    """GROUP changes the launch only with BLOCK=64, which the default has not."""
    report = checked(
        tmp_path,
        num_warps=f'Knob("GROUP", (1, 2, 4)),\n            {NUM_WARPS}',
        default='"BLOCK": 256, "GROUP": 1, ',
        launch='{"BLOCK": block * (config["GROUP"] if block == 64 else 1), **warps}',
    )
    assert report.error is None
    assert not warned(report)


@pytest.mark.parametrize("reference", ["gemm", "scaled_gemm", "softmax", "transpose", toy("sums")])
def test_every_knob_of_a_right_kernel_changes_a_launch(reference: str) -> None:
    kernel = catalog.resolve(reference)
    sizes = {dim.name: 1024 for dim in kernel.signature.dims if dim.default is None}
    problem = kernel.signature.problem(sizes)
    space = FeasibleSpace.of(kernel, problem, CARD.limits)
    default = kernel.default_config(problem, CARD.limits)
    assert not list(unused_steps(kernel, problem, CARD.limits, space, default))


def test_the_default_is_compiled_first() -> None:
    kernel = catalog.resolve(toy("double"))
    problem = kernel.signature.problem({"N": 64})
    space = FeasibleSpace.of(kernel, problem, CARD.limits)
    default = kernel.default_config(problem, CARD.limits)
    settings = CheckKnobsSettings(choices_s=0.0)
    steps = list(compile_steps(toy("double"), kernel, problem, CARD, space, default, settings))
    assert steps[0].subject == default.text
    assert len(steps) == 4 + 3
