"""`tuner check`: check a kernel file or an op without a GPU."""

from __future__ import annotations

from difflib import get_close_matches

import click
from rich.markup import escape

from tuner.cli.grid import Output, print_lines
from tuner.cli.ops import json_option
from tuner.cli.text import print_json, say
from tuner.errors import UsageError
from tuner.report.text import first_line
from tuner.tuning.check_kernel import DEVICE, check_kernel
from tuner.tuning.check_report import KernelReport


class _CheckCommand(click.Command):
    """Takes the values of a problem as other commands do, too: `--N 4096` is `N=4096`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [name for option in self.get_params(ctx) for name in option.opts if name.startswith("--")]
        words, values, left = list[str](), list[str](), iter(args)
        for word in left:
            name, equals, value = word.partition("=")
            if not name.startswith("--") or name == "--" or get_close_matches(name, options):
                words.append(word)
                continue
            following = value if equals else next(left, None)
            if following is None:
                words.append(word)
            else:
                values.append(f"{name[2:]}={following}")
        return super().parse_args(ctx, [*words, *values])


def _check(reference: str, values: tuple[str, ...], device_id: str, as_json: bool) -> int:
    report = check_kernel(reference, dict(map(_pair, values)), device_id)
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    if report.error is not None:
        say(f"{report.error.name}: {report.error.subject}\n{report.error.text}")
    return 0 if report.error is None else 1


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(f"a value of the problem is given as NAME=VALUE, not {text[:80]!r}; write M=4096 or --M 4096")
    return name, value


def _print(report: KernelReport) -> None:
    outcome = "passes, compiled for" if report.error is None else "fails, checked for"
    lines = [f"[bold]{escape(report.reference)}[/] {outcome} {report.device}"]
    for step in report.steps:
        about = step.text if step is not report.error else first_line(step.text, None)
        checked = f"{step.subject}; {about}" if about else step.subject
        lines.append(f"  {step.name:9}  {step.outcome:7}  {escape(checked)}")
    print_lines(lines, Output())


command = _CheckCommand(
    "check",
    callback=_check,
    params=[
        click.Argument(["reference"], metavar="FILE|OP"),
        click.Argument(["values"], metavar="[NAME=VALUE]...", nargs=-1),
        click.Option(
            ["--device", "device_id"],
            default=DEVICE,
            show_default=True,
            metavar="ID",
            help="Card to compile for.",
        ),
        json_option,
    ],
    help="Check a kernel without a GPU: its fields, its configs, its code for a card, and small problems in Triton's "
    "interpreter. Prints what was checked, and the first error. A value of the problem may be an option: --N 4096.",
)
