"""`tuner check`: check a kernel file or an op without a GPU."""

from __future__ import annotations

import click
from rich.markup import escape

from tuner.cli.grid import Output, print_lines
from tuner.cli.ops import json_option
from tuner.cli.text import print_json, say
from tuner.errors import UsageError
from tuner.tuning.check_kernel import DEVICE, check_kernel
from tuner.tuning.check_report import KernelReport


def _check(reference: str, values: tuple[str, ...], device_id: str, as_json: bool) -> int:
    report = check_kernel(reference, dict(map(_pair, values)), device_id)
    if as_json:
        print_json(report.as_json())
    elif report.error is None:
        _print(report)
    if report.error is not None:
        say(f"{report.error.name}: {report.error.subject}\n{report.error.text}")
    return 0 if report.error is None else 1


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(f"a value of the problem is given as NAME=VALUE, not {text[:80]!r}; write M=4096")
    return name, value


def _print(report: KernelReport) -> None:
    lines = [f"[bold]{escape(report.reference)}[/] passes, compiled for {report.device}"]
    for step in report.steps:
        checked = f"{step.subject}; {step.text}" if step.text else step.subject
        lines.append(f"  {step.name:9}  {step.outcome:7}  {escape(checked)}")
    print_lines(lines, Output())


command = click.Command(
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
    "interpreter. Prints the first error, or what was checked.",
)
