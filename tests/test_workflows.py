"""The workflows of the forge: what a push runs, and what a tag publishes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import tuner

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def workflow(name: str) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    return loaded


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_workflow_may_only_read_and_ends_in_time(file: Path) -> None:
    loaded = workflow(file.stem)
    assert loaded["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 300 for job in loaded["jobs"].values())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_token_stays_in_a_checkout(file: Path) -> None:
    steps = [step for job in workflow(file.stem)["jobs"].values() for step in job["steps"]]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_workflow_runs_scripts_that_exist(file: Path) -> None:
    for script in re.findall(r"(?:scripts/|\.ci/)[\w-]+", file.read_text()):
        assert (ROOT / script).is_file()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_value_of_an_event_is_read_as_shell(file: Path) -> None:
    steps = [step for job in workflow(file.stem)["jobs"].values() for step in job["steps"]]
    assert not [step["run"] for step in steps if "${{" in step.get("run", "")]


def test_nights_never_overlap_and_none_is_cancelled() -> None:
    nightly = workflow("nightly")
    assert nightly["concurrency"] == {"group": "nightly", "cancel-in-progress": False}
    assert set(nightly[True]) == {"schedule", "workflow_dispatch"}  # YAML reads `on` as true
    assert set(nightly[True]["workflow_dispatch"]["inputs"]) == {"budget", "op", "check"}


def test_a_night_uploads_its_report_in_any_case_and_may_write_nothing() -> None:
    job = workflow("nightly")["jobs"]["retune"]
    assert "self-hosted" in job["runs-on"]
    assert "permissions" not in job
    _, install, night, upload = job["steps"]
    assert install["run"].split()[0] == "scripts/install-gpu"
    assert "scripts/nightly report" in night["run"]
    assert (upload["if"], upload["with"]["path"]) == ("${{ always() }}", "report/")
    assert job["outputs"] == {"code": "${{ steps.night.outputs.code }}"}


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"OP": "", "CHECK": ""}, ["report", "--budget", "60m", "--gpu", "auto"]),
        (
            {"OP": "my kernel.py", "CHECK": "yes"},
            ["report", "my kernel.py", "--budget", "60m", "--gpu", "auto", "--check"],
        ),
    ],
)
def test_inputs_of_a_night_are_options_of_its_script(tmp_path: Path, inputs: dict[str, str], words: list[str]) -> None:
    night = workflow("nightly")["jobs"]["retune"]["steps"][2]
    assert {*inputs, "BUDGET", "GPUS"} < set(night["env"])
    script = tmp_path / "scripts" / "nightly"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    script.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "BUDGET": "60m", "GPUS": "auto", **inputs}
    command = ["bash", "-e", "-o", "pipefail", "-c", night["run"]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == words


def test_the_job_that_may_write_runs_after_a_red_night_too_and_has_no_card_and_no_database() -> None:
    job = workflow("nightly")["jobs"]["propose"]
    assert (job["needs"], job["runs-on"]) == ("retune", "ubuntu-latest")
    assert job["if"] == "${{ always() && needs.retune.outputs.code != '' }}"
    assert job["permissions"] == {"contents": "write", "issues": "write", "pull-requests": "write"}
    assert "TUNER_DB" not in str(job)
    assert job["steps"][-1]["run"] == 'scripts/propose report "$CODE"'


def test_the_gate_runs_a_forks_code_only_once_it_is_labelled_and_without_secrets() -> None:
    canary = workflow("canary")
    assert set(canary[True]) == {"pull_request"}  # not pull_request_target, which has secrets
    text = (ROOT / ".github" / "workflows" / "canary.yml").read_text()
    assert "secrets." not in text
    (job,) = canary["jobs"].values()
    fork = {
        "vars.TUNER_CANARY": "answers/card.json",
        "github.event.label.name": "canary",
        "github.event.pull_request.head.repo.full_name": "else/it",
        "github.repository": "me/it",
    }
    ours = fork | {"github.event.pull_request.head.repo.full_name": "me/it"}
    assert not runs(job, fork | {"github.event.action": "opened"})
    assert not runs(job, fork | {"github.event.action": "synchronize"})  # the label is of an earlier push
    assert runs(job, fork | {"github.event.action": "labeled"})
    assert not runs(job, fork | {"github.event.action": "labeled", "github.event.label.name": "docs"})
    assert runs(job, ours | {"github.event.action": "synchronize"})
    assert not runs(job, ours | {"github.event.action": "opened", "vars.TUNER_CANARY": ""})


def runs(job: dict[str, Any], values: dict[str, str]) -> bool:
    """Return whether the condition of a job holds."""
    condition = job["if"].removeprefix("${{").removesuffix("}}").replace("&&", "and").replace("||", "or")
    names = sorted(values, key=len, reverse=True)
    found = re.sub("|".join(map(re.escape, names)), lambda name: repr(values[name[0]]), condition)
    return bool(eval(found.strip(), {}))


def test_only_the_step_that_publishes_has_an_identity_and_it_runs_nothing_of_ours() -> None:
    jobs = workflow("publish")["jobs"]
    assert "permissions" not in jobs["build"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"
    download, publish = jobs["publish"]["steps"]
    assert download["with"]["name"] == jobs["build"]["steps"][-1]["with"]["name"]
    assert re.fullmatch(r"pypa/gh-action-pypi-publish@[0-9a-f]{40}", publish["uses"])
    assert "with" not in publish


@pytest.mark.parametrize(("tag", "code"), [(f"v{tuner.__version__}", 0), ("v9.9.9", 1), (tuner.__version__ + "x", 1)])
def test_a_tag_that_is_not_the_version_stops_the_release(tmp_path: Path, tag: str, code: int) -> None:
    (check,) = (
        step for step in workflow("publish")["jobs"]["build"]["steps"] if step.get("name", "").startswith("The tag")
    )
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / f"triton_tuner-{tuner.__version__}-py3-none-any.whl").touch()
    environment = {"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", check["run"]], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == code


def test_the_newest_triton_is_tried_on_tests_that_exist() -> None:
    script = (ROOT / "scripts" / "newest-triton").read_text()
    paths = re.findall(r"tests/[\w/.]+", script)
    assert paths
    assert all((ROOT / path).exists() for path in paths)
    (code,) = re.findall(r'python -P -c "(.+)"', script)
    printed = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"3\.\d+\.0\n", printed)
