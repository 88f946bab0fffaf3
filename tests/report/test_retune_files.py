"""The other files of a retune's report: JUnit XML, JSON, plots, and the folder that they are written to."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from retuned import CAUSES, finding, generation, now, reading, retune
from stored import HERE, SCALE

from tuner.errors import UsageError
from tuner.records.retune import Action, Cause
from tuner.report.retune.files import write_files
from tuner.report.retune.junit import junit
from tuner.report.retune.mermaid import chart
from tuner.report.retune.points import points
from tuner.report.retune.report import RetuneReport
from tuner.report.retune.svg import FRAME, plot

SVG = "{http://www.w3.org/2000/svg}"
LEFT = {1000: SCALE.problem({"M": 77}), 1001: SCALE.problem({"M": 78})}
NASTY = "bad \x1b[31m]]> & <b> \x00\x08\ufffe\ud800 \U0001f525\r\nsecond 'line' \"here\""


class TestJUnit:
    def test_it_counts_as_ci_servers_do(self) -> None:
        root = ElementTree.fromstring(junit(RetuneReport(retune(planned=8), left=LEFT)))
        (suite,) = root
        counts = {"tests": "8", "failures": "2", "errors": "1", "skipped": "2"}
        assert {name: suite.get(name) for name in counts} == counts
        assert (suite.get("timestamp"), suite.get("hostname")) == ("2026-11-29T01:00:00", "node-7")
        cases = suite.findall("testcase")
        assert len(cases) == 8
        assert len({case.get("name") for case in cases}) == 8
        assert {case.get("classname") for case in cases} == {"retune.scale"}
        kinds = [[part.tag for part in case] for case in cases]
        calm = ["system-out"]
        assert kinds == [calm, ["failure"], calm, ["failure"], ["error"], calm, ["skipped"], ["skipped"]]
        assert cases[1][0].attrib == {
            "type": "slower: kernel or compiler",
            "message": "0.991 x torch (0.990 - 0.992), was 1.100 (1.099 - 1.101)",
        }
        said = cases[1][0].text or ""
        assert "now: 11.10 us (11.09 - 11.11), 0.991 (0.990 - 0.992) x vendor" in said
        assert "changed: Triton 3.6.0, now 3.7.1" in said
        assert suite.find("properties/property[@name='triton']").attrib["value"] == "3.7.1"  # type: ignore[union-attr]

    def test_a_slower_machine_is_no_failure_if_the_card_as_a_whole_held(self) -> None:
        found = finding(1, Cause.SLOWER_MACHINE, now=now(11)), finding(2), finding(3)
        (suite,) = ElementTree.fromstring(junit(RetuneReport(retune(*found))))
        assert suite.get("failures") == "0"
        assert suite.find("testcase/failure") is None

    def test_any_text_can_be_read_again(self) -> None:
        found = [finding(1, Cause.BROKEN, now=None, error=NASTY), finding(2, Cause.NOT_MEASURED, now=None, text=NASTY)]
        root = ElementTree.fromstring(junit(RetuneReport(retune(*found, environment={"host": NASTY}))).encode())
        failure, error = (part for part in root.iter() if part.tag in ("failure", "error"))
        assert (failure.text or "").endswith("bad ]]> & <b>  \U0001f525\nsecond 'line' \"here\"")
        assert error.get("message") == "bad ]]> & <b> \U0001f525"


class TestHistory:
    def test_it_has_generations_readings_and_the_new_answer_in_order(self) -> None:
        generations = [generation(30, 9.5, "2026-11-28T02:00:00"), generation(3, 99.0, "2026-11-01T01:00:00")]
        generations += [generation(71, 9.6, "2026-11-29T01:00:01"), generation(20, 12.0, "2026-01-01T02:00:00")]
        earlier = [finding(3, now=now(10.2, at="2026-11-15T01:00:00")), finding(3, now=None)]
        found = points(CAUSES[2], generations, earlier)
        assert [point.latency_us for point in found] == [12.0, 10.0, 10.2, 9.5, 10.1, pytest.approx(9.6008, abs=1e-4)]
        assert [point.label for point in found] == ["", "then", "", "", "now", "new"]
        assert [point.kind for point in found] == ["answer", "answer", "check", "answer", "check", "answer"]

    def test_latencies_of_another_policy_or_of_a_replay_are_left_out(self) -> None:
        others = [replace(HERE, policy="warm-graph-1"), replace(HERE, recorded="space")]
        generations = [generation(30 + place, 9.0, "2026-01-01", other) for place, other in enumerate(others)]
        assert len(points(CAUSES[1], generations)) == 2

    def test_earlier_readings_of_a_replay_are_left_out(self) -> None:
        replayed = finding(2, now=now(10.2, at="2026-11-15T01:00:00", provenance=replace(HERE, recorded="space")))
        assert len(points(CAUSES[1], (), [replayed])) == 2

    def test_what_was_confirmed_is_one_point(self) -> None:
        earlier = [finding(1, action=Action.CONFIRMED, new_answer_id=30)]
        assert len(points(finding(2), [generation(30, 10.0, "2026-11-28T01:00:00")], earlier)) == 3


class TestPlot:
    def test_it_is_a_picture_within_its_frame(self) -> None:
        generations = [generation(20 + day, 12 - day / 10, f"2026-10-{day + 10}T02:00:00") for day in range(20)]
        root = ElementTree.fromstring(plot("scale <1>", "a & b\x1b[0m", points(CAUSES[1], generations)))
        assert root.tag == f"{SVG}svg"
        texts = [text.text for text in root.iter(f"{SVG}text")]
        assert texts[:2] == ["scale <1>", "a & b"]
        assert {"answer", "default", "vendor", "stored", "measured again", "then", "now"} <= {*texts}
        circles = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter(f"{SVG}circle")]
        assert len(circles) == 2 + 3 * 22  # of the legend, and of three lines
        assert all(FRAME.left <= x <= FRAME.width and 0 <= y <= FRAME.height for x, y in circles)
        times = [text for text in texts if text and re.fullmatch(r"\d\d-\d\d \d\d:\d\d", text)]
        assert 4 <= len(times) <= FRAME.labels + 2
        assert times[-1] == "11-29 01:00"

    @pytest.mark.parametrize("latency_us", [0.0012, 1.0, 1_234_567.0])
    def test_equal_latencies_of_any_size_have_an_axis(self, latency_us: float) -> None:
        found = finding(1, then=reading(latency_us, None, None), now=now(latency_us, None, None))
        root = ElementTree.fromstring(plot("title", "", points(found)))
        assert len([*root.iter(f"{SVG}circle")]) == 2 + 2
        text, _ = chart(points(found))
        assert "e-" not in text
        assert "e+" not in text

    def test_a_chart_has_one_place_for_each_point(self) -> None:
        """Labels that repeat are numbered, and lines with a gap are left out."""
        generations = [generation(20 + hour, 12.0, f"2026-11-02T0{hour}:00:00") for hour in range(3)]
        found = finding(1, now=now(10, None))
        text, words = chart(points(found, generations))
        assert 'x-axis ["then", "11-02", "11-02 (2)", "11-02 (3)", "now"]' in text
        assert words == "Latencies in us, oldest first: answer (blue), default (orange)."
        assert text.count("line [") == 2


class TestFiles:
    def test_all_files_are_written_and_replaced(self, tmp_path: Path) -> None:
        report = RetuneReport(retune(planned=8), left=LEFT)
        for _ in range(2):
            written = write_files(report, tmp_path / "a" / "b")
        names = [str(file.relative_to(tmp_path / "a" / "b")) for file in written]
        assert names == [
            "retune.json",
            "retune.md",
            "retune-short.md",
            "retune.xml",
            "plots/12-2-scale-256-x-4352-bf16.svg",
            "plots/12-3-scale-384-x-4352-bf16.svg",
        ]
        document = json.loads(written[0].read_text())
        assert document["summary"]["exit_code"] == 4
        assert document["summary"]["causes"]["unchanged"] == 2
        assert document["left_problems"][0] == {"answer_id": 1000, "op": "scale", "problem": LEFT[1000].values}
        assert [each["answer_id"] for each in document["findings"]] == [1, 2, 3, 4, 5, 6]

    def test_a_folder_that_cannot_be_written_is_refused_in_a_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(
            UsageError, match=r"--report names a folder that can be written, and .*retune.json cannot: "
        ):
            write_files(RetuneReport(retune()), tmp_path / "file")
