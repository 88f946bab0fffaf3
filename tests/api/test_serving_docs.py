"""Run what docs/serving.md and docs/jobs.md say: their commands against a service, their lists against the code."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from served import TOKEN, answer, problem, serving

from tuner.api.app import create_app
from tuner.cli import export, serve, work
from tuner.db.store import Store

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "serving.md").read_text() + (DOCS / "jobs.md").read_text()
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


def test_every_curl_is_answered_and_none_is_left_out(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "tuner.db")
    answer(store, problem(M=4096))
    answer(store, problem(M=16, N=4096, K=4096))
    store.retunes.start("nvidia-h200", {"all": True}, [1, 2], {"triton": "3.6.0"})
    with serving(create_app(store, token=TOKEN)) as client:
        curls = [line for line in COMMANDS if line.startswith("curl")]
        for line in curls:
            request = line.replace("curl", "curl --fail-with-body", 1)
            request = request.replace("http://127.0.0.1:8000", str(client.base_url).rstrip("/"))
            environment = os.environ | {"TUNER_TOKEN": TOKEN, "no_proxy": "127.0.0.1"}
            done = subprocess.run(["sh", "-c", request], env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{line}\n{done.stdout}"
        for path in client.get("/openapi.json").json()["paths"]:
            assert any(f":8000{path.replace('{id}', '1')}" in line for line in curls), path
        metrics = set(re.findall(r"^# TYPE (tuner_\w+)", client.get("/metrics").text, re.MULTILINE))
    store.close()
    assert set(re.findall(r"`(tuner_\w+)`", PAGE)) == {name for name in metrics if not name.endswith("_created")}


def test_the_options_are_those_of_the_commands() -> None:
    options = (*serve.command.params, *export.command.params, *work.command.params)
    known = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    assert set(re.findall(r"(?<=[ `])--[a-z-]+(?=[ `\n])", PAGE.replace("--compressed", ""))) <= known
