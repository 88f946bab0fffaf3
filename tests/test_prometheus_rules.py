"""The alert rules: metrics and labels that the service has; each alert fires, and none while all is well."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.api.metrics import Metrics

FILE = Path(__file__).parents[1] / "docker" / "prometheus-rules.yaml"
RULES = yaml.safe_load(FILE.read_text())["groups"][0]["rules"]


def test_rules_use_metrics_and_labels_of_the_service() -> None:
    metrics = Metrics()
    metrics.lookup("gemm", "exact")
    metrics.request("/best-config", 200, 0.001)
    samples = re.findall(r"^(\w+)(?:\{(.*)\})? ", metrics.text().decode(), re.MULTILINE)
    labels = {name: set(re.findall(r'(\w+)="', text)) | {"instance", "job"} for name, text in samples}
    labels["tuner_unreadable_rows"] = {"table"}  # of a store with such rows
    assert len({rule["alert"] for rule in RULES}) == len(RULES) == 11
    for rule in RULES:
        used = re.findall(r"\b(tuner_\w+)(?:\{([^}]*)\})?", rule["expr"])
        assert used or rule["alert"] == "TunerServiceDown"
        for name, selector in used:
            assert set(re.findall(r"(\w+)=~?\"", selector)) <= labels[name], rule["alert"]
        assert set(rule["annotations"]) == {"summary"}


def series(**values: str) -> list[dict[str, str]]:
    """Return series of a service, a value each minute, by short names."""
    names = {
        "up": 'up{job="triton-tuner"}',
        "age": "tuner_view_age_seconds",
        "ok": 'tuner_requests_total{path="/best-config", status="200"}',
        "failed": 'tuner_requests_total{path="/best-config", status="500"}',
        "answers": "tuner_answers",
        "fast": 'tuner_request_seconds_bucket{path="/best-config", le="0.1"}',
        "timed": 'tuner_request_seconds_bucket{path="/best-config", le="0.25"}',
        "all": 'tuner_request_seconds_bucket{path="/best-config", le="+Inf"}',
        "errors": "tuner_store_errors_total",
        "unreadable": 'tuner_unreadable_rows{table="answers"}',
        "exact": 'tuner_lookups_total{op="gemm", match="exact"}',
        "stale": 'tuner_lookups_total{op="gemm", match="stale"}',
        "none": 'tuner_lookups_total{op="gemm", match="none"}',
        "unlisted": "tuner_misses_unlisted_total",
        "snapshot": "tuner_snapshot_id",
    }
    return [{"series": names[name], "values": text} for name, text in values.items()]


WELL = series(
    up="1x2000",
    age="0.2x2000",
    ok="0+100x2000",
    failed="0x2000",
    answers="100x2000",
    fast="0+100x2000",
    timed="0+100x2000",
    all="0+100x2000",
    errors="0x2000",
    unreadable="0x2000",
    exact="0+100x2000",
    stale="0+5x2000",
    none="0+5x2000",
    unlisted="0x2000",
    snapshot="5+1x2000",
)
ILL = series(
    up="0x2000",
    age="90x2000",
    ok="0+100x2000",
    failed="0+5x2000",
    answers="100x1500 80x500",
    fast="0+50x2000",
    timed="0+100x2000",
    all="0+100x2000",
    errors="0+1x2000",
    unreadable="3x2000",
    exact="0+10x2000",
    stale="0+70x2000",
    none="0+30x2000",
    unlisted="0+1x2000",
    snapshot="5x2000",
)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(("given", "fires"), [(WELL, False), (ILL, True)], ids=["well", "ill"])
def test_each_alert_fires_and_none_while_all_is_well(given: Any, fires: bool, tmp_path: Path) -> None:
    expected = [{"labels": f'{{alertname="{rule["alert"]}"}}', "value": 1} for rule in RULES if fires]
    story = {
        "rule_files": [str(FILE)],
        "tests": [
            {
                "interval": "1m",
                "input_series": given,
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": "1550m",
                        "exp_samples": expected,
                    }
                ],
            }
        ],
    }
    (tmp_path / "story.json").write_text(json.dumps(story))
    command = ["promtool", "test", "rules", str(tmp_path / "story.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
