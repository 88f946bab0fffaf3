"""The report of a retune as JUnit XML: a test case for each problem, as CI servers read it."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tuner.kernels.spec import Problem
from tuner.records.retune import Cause, Finding
from tuner.report.retune.escapes import joined_lines, one_line, plain_text
from tuner.report.retune.report import RetuneReport
from tuner.report.retune.text import change_cell, config_line, done_text, latency_cell, ratio_cell
from tuner.report.text import short


def junit(report: RetuneReport) -> str:
    """Return the document.

    A regression is a failure, a problem that was not measured an error, and one that is left is skipped.
    """
    retune, summary = report.retune, report.summary
    counts = {
        "tests": str(len(retune.findings) + len(report.left)),
        "failures": str(len(summary.regressions)),
        "errors": str(len(summary.not_measured)),
    }
    seconds = f"{summary.seconds:.3f}"
    root = Element("testsuites", {"name": "tuner retune", "time": seconds, **counts})
    suite = SubElement(
        root, "testsuite", {"name": joined_lines(f"retune on {retune.device}"), "time": seconds, **counts}
    )
    suite.set("skipped", str(len(report.left)))
    suite.set("timestamp", retune.started_at[:19])
    if host := retune.environment.get("host"):
        suite.set("hostname", joined_lines(host))
    properties = SubElement(suite, "properties")
    for name, value in {"retune": str(retune.id), "device": retune.device, **retune.environment}.items():
        SubElement(properties, "property", {"name": joined_lines(name), "value": joined_lines(value)})
    regressions = {finding.answer_id for finding in summary.regressions}
    for finding in retune.findings:
        _add_case(suite, finding, is_regression=finding.answer_id in regressions)
    for problem in report.left.values():
        case = _case(suite, problem, 0.0)
        SubElement(case, "skipped", {"message": "left: the retune ended before it"})
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(suite: Element, problem: Problem, seconds: float) -> Element:
    names = {"name": joined_lines(short(problem)), "classname": joined_lines(f"retune.{problem.op}")}
    return SubElement(suite, "testcase", {**names, "time": f"{seconds:.3f}"})


def _add_case(suite: Element, finding: Finding, *, is_regression: bool) -> None:
    case = _case(suite, finding.problem, finding.seconds)
    lines = _lines(finding)
    message = joined_lines(one_line(finding.text or finding.error))
    if finding.cause is Cause.NOT_MEASURED:
        error = SubElement(case, "error", {"type": str(finding.cause), "message": message})
        error.text = plain_text(finding.error or finding.text)
    elif is_regression:
        failure = SubElement(case, "failure", {"type": str(finding.cause), "message": message})
        failure.text = "\n".join([*lines, plain_text(finding.error)]).rstrip()
    else:
        SubElement(case, "system-out").text = "\n".join(lines)


def _lines(finding: Finding) -> list[str]:
    """Return the cause, both readings and what was done, a line for each."""
    lines = [f"{finding.cause}: {one_line(finding.text)}", f"config: {config_line(finding.config)}"]
    for when, reading in (("then", finding.then), ("now", finding.now)):
        if reading is None:
            continue
        ratios = [f"{ratio_cell(contender)} x {role}" for role, contender in reading.contenders.items()]
        lines.append(f"{when}: {', '.join([latency_cell(reading), *ratios])}")
    change = change_cell(finding)
    lines += [f"change: {change}"] * bool(change)
    lines += [f"changed: {one_line(reason)}" for reason in finding.reasons]
    lines.append(f"done: {done_text(finding)}")
    if finding.new_config is not None:
        lines.append(f"new config: {config_line(finding.new_config)}")
    return [plain_text(line) for line in lines]
