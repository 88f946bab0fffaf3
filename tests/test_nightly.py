"""The scripts of a night and of the gate for pull requests, and what starts them.

Most tests have stand-ins for `tuner` and `gh`, two have the real `tuner` over recorded spaces. Stand-ins
write down their arguments and end with the exit codes that a test gives them.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from invoked import Invoked
from nights import after, before, written

ROOT = Path(__file__).parents[1]
DEVICE = "nvidia-h200"
REPORT = "# Retune 7\n\nWhat moved.\n"

TUNER = r"""#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
command=$1
while [ $# -gt 0 ]; do
  case $1 in
    --report)
      mkdir -p "$2"
      printf "$REPORT" >"$2/retune.md"
      echo '{"device": "nvidia-h200", "planned": [1, 2], "summary": {"actions": {}}}' >"$2/retune.json" ;;
    export) cp "$BUNDLE" "$4" ;;
  esac
  shift
done
case $command in
  retune) exit "$(echo "${RETUNE:-0 0 0}" | cut -d " " -f "$(grep -c ' retune ' "$CALLS")")" ;;
  work) exit "${WORK:-0}" ;;
esac
"""
"""Its exit codes are those of `RETUNE`, one for each call, and of `WORK`."""

GH = """#!/bin/sh
echo "$*" >>"$CALLS"
case "$1 $2" in
  *list) [ -z "${OPEN:-}" ] || echo "$OPEN" ;;
  *create | *edit) while [ $# -gt 0 ]; do [ "$1" != --body-file ] || cp "$2" "$BODY"; shift; done ;;
esac
"""


class Stage:
    """A folder with programs on the path, and the calls that they wrote down."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, folder / "calls"
        (folder / "bin").mkdir()
        self.environment = {
            "PATH": f"{folder}/bin:{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(folder),
            "CALLS": str(self.calls),
            "REPORT": REPORT,
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        }

    def program(self, name: str, text: str) -> Path:
        file = self.folder / "bin" / name
        file.write_text(text)
        file.chmod(0o755)
        return file

    def run(self, script: str, *words: str | Path, folder: Path | None = None, **variables: Any) -> int:
        environment = {**self.environment, **{name: str(value) for name, value in variables.items()}}
        command = [ROOT / "scripts" / script, *words]
        return subprocess.run(command, cwd=folder or self.folder, env=environment, check=False).returncode

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def bundle(file: Path, *answers: str, snapshot: str = "a-1") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"sha256": snapshot, "snapshot": snapshot, "answers": answers}))
    return file


@pytest.mark.parametrize(
    ("retune", "work", "code"), [(0, 0, 0), (0, 1, 1), (4, 0, 4), (4, 1, 4), (1, 0, 1)], ids=lambda code: str(code)
)
def test_a_night_ends_with_the_code_of_what_went_wrong_and_leaves_its_report(
    stage: Stage, retune: int, work: int, code: int
) -> None:
    stage.program("tuner", TUNER)
    held = bundle(stage.folder / "held.json", "one")
    assert stage.run("nightly", "report", "gemm", "--budget", "5m", RETUNE=retune, WORK=work, BUNDLE=held) == code
    assert stage.called() == [
        "tuner retune --report report gemm --budget 5m",
        "tuner work --drain --missed",
        f"tuner export --device {DEVICE} report/answers/{DEVICE}.json",
    ]
    assert (stage.folder / "summary").read_text() == REPORT
    assert (stage.folder / "output").read_text() == f"code={retune}\n"
    assert (stage.folder / f"report/answers/{DEVICE}.json").read_text() == held.read_text()


@pytest.mark.parametrize(
    ("words", "both"),
    [
        (["--gpu", "0,1"], "--gpu=0,1"),
        (["--gpu=0,1", "--stale"], "--gpu=0,1"),
        (["--replay", "auto", "--policy=cold"], "--replay=auto --policy=cold"),
        (["--shared", "--policy", "warm", "--threshold", "3%"], "--shared --policy=warm"),
    ],
)
def test_both_commands_of_a_night_measure_alike(stage: Stage, words: list[str], both: str) -> None:
    stage.program("tuner", TUNER)
    assert stage.run("nightly", "report", *words, BUNDLE=bundle(stage.folder / "held.json", "one")) == 0
    assert stage.called()[:2] == [
        f"tuner retune --report report {' '.join(words)}",
        f"tuner work --drain --missed {both}",
    ]


def test_a_night_without_a_folder_or_on_a_cluster_is_refused(stage: Stage) -> None:
    stage.program("tuner", TUNER)
    assert [stage.run("nightly"), stage.run("nightly", "--check")] == [2, 2]
    assert [stage.run("nightly", "report", *words) for words in (["--on", "slurm"], ["--on=local"])] == [2, 2]
    assert stage.called() == []


@pytest.mark.parametrize("code", [2, 3, 5, 130])
def test_a_night_without_a_card_or_a_database_ends_at_once(stage: Stage, code: int) -> None:
    stage.program("tuner", TUNER)
    assert stage.run("nightly", "report", RETUNE=code) == code
    assert stage.called() == ["tuner retune --report report"]


def test_a_night_with_nothing_to_measure_again_tunes_the_requests(stage: Stage) -> None:
    stage.program("tuner", TUNER.replace("--report)", "--nothing)"))
    (stage.folder / "report").mkdir()
    (stage.folder / "report/retune.json").write_text("of yesterday")
    assert stage.run("nightly", "report", RETUNE=1) == 1
    assert stage.called() == ["tuner retune --report report", "tuner work --drain --missed"]
    assert not (stage.folder / "output").exists()


def test_a_check_tunes_nothing_and_offers_no_answers_not_even_those_of_an_earlier_night(stage: Stage) -> None:
    stage.program("tuner", TUNER)
    bundle(stage.folder / f"report/answers/{DEVICE}.json", "of yesterday")
    assert stage.run("nightly", "report", "--check", RETUNE=4) == 4
    assert stage.called() == ["tuner retune --report report --check"]
    assert not (stage.folder / "report/answers").exists()
    assert (stage.folder / "summary").read_text() == REPORT


class Repository:
    """A clone with an origin, in which a night's report lies."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.origin, self.clone = stage.folder / "origin.git", stage.folder / "clone"
        stage.program("gh", GH)
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.origin), folder=stage.folder)
        self.git("clone", "--quiet", str(self.origin), str(self.clone), folder=stage.folder)
        (self.clone / "report").mkdir()
        (self.clone / "report/retune.json").write_text(json.dumps({"device": DEVICE}))
        (self.clone / "report/retune-short.md").write_text(REPORT)

    def git(self, *words: str, folder: Path | None = None) -> str:
        command = ["git", "-c", "user.name=me", "-c", "user.email=me@localhost", *words]
        done = subprocess.run(
            command, cwd=folder or self.clone, env=self.stage.environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    def keep(self, *answers: str) -> None:
        bundle(self.clone / f"answers/{DEVICE}.json", *answers)
        self.git("add", "answers")
        self.git("commit", "--quiet", "--message", "answers")
        self.git("push", "--quiet", "origin", "HEAD:main")

    def propose(self, code: int, **variables: Any) -> list[str]:
        self.stage.calls.unlink(missing_ok=True)
        body = self.stage.folder / "body"
        assert self.stage.run("propose", "report", str(code), folder=self.clone, BODY=body, **variables) == 0
        return [" ".join(call.split()[:2]) for call in self.stage.called()]

    def proposed(self) -> Mapping[str, Any]:
        document: Mapping[str, Any] = json.loads(
            self.git("show", f"nightly/{DEVICE}:answers/{DEVICE}.json", folder=self.origin)
        )
        return document


@pytest.fixture
def repository(stage: Stage) -> Repository:
    return Repository(stage)


def test_changed_answers_are_one_pull_request_that_later_nights_update(repository: Repository) -> None:
    repository.keep("old")
    bundle(repository.clone / f"report/answers/{DEVICE}.json", "new", snapshot="a-2")
    run = {"GITHUB_SERVER_URL": "https://forge", "GITHUB_REPOSITORY": "me/it", "GITHUB_RUN_ID": "5"}
    assert repository.propose(4, **run) == ["auth setup-git", "pr list", "pr create"]
    assert f"--title Answers of {DEVICE}, re-tuned; there are regressions" in " ".join(repository.stage.called())
    assert repository.proposed()["answers"] == ["new"]
    assert repository.git("diff", "--name-only", "main", f"nightly/{DEVICE}", folder=repository.origin).split() == [
        f"answers/{DEVICE}.json"
    ]
    body = (repository.stage.folder / "body").read_text()
    assert body == f"The whole report, with plots: https://forge/me/it/actions/runs/5\n\n{REPORT}"

    repository.git("switch", "--quiet", "--detach", "main")  # as the checkout of the next night
    bundle(repository.clone / f"report/answers/{DEVICE}.json", "newer", snapshot="a-3")
    assert repository.propose(0, OPEN=9) == ["auth setup-git", "pr list", "pr edit"]
    assert f"pr edit 9 --title Answers of {DEVICE}, re-tuned --body-file" in " ".join(repository.stage.called())
    assert repository.proposed()["answers"] == ["newer"]
    assert repository.git("rev-list", "--count", f"main..nightly/{DEVICE}", folder=repository.origin) == "1\n"


def test_the_first_night_proposes_a_file_of_answers(repository: Repository) -> None:
    (repository.clone / "README.md").touch()
    repository.git("add", "README.md")
    repository.git("commit", "--quiet", "--message", "begin")
    repository.git("push", "--quiet", "origin", "HEAD:main")
    bundle(repository.clone / f"report/answers/{DEVICE}.json", "new")
    assert repository.propose(0) == ["auth setup-git", "pr list", "pr create"]
    assert repository.proposed()["answers"] == ["new"]


def test_regressions_without_a_change_are_one_issue_and_a_calm_night_says_nothing(repository: Repository) -> None:
    repository.keep("old")
    bundle(repository.clone / f"report/answers/{DEVICE}.json", "old", snapshot="of another card's night")
    assert repository.propose(0) == []
    assert repository.propose(4) == ["issue list", "issue create"]
    assert repository.propose(4, OPEN=3) == ["issue list", "issue edit"]
    (repository.clone / f"report/answers/{DEVICE}.json").unlink()  # a check only
    assert repository.propose(4, OPEN=3) == ["issue list", "issue edit"]
    assert repository.git("branch", "--list", folder=repository.origin).split() == ["*", "main"]


@pytest.mark.parametrize(
    ("codes", "code"), [("0 0", 0), ("4 0", 0), ("1 0", 0), ("0 4 4", 4), ("0 4 0", 0), ("0 1", 1), ("0 3", 3)]
)
def test_a_slowdown_stops_a_pull_request_if_a_second_measurement_confirms_it(
    stage: Stage, codes: str, code: int
) -> None:
    """The codes are those of the base, of the change, and of the change once more."""
    base, head = stage.program("base", TUNER), stage.program("head", TUNER)
    held = bundle(stage.folder / "held.json", "one")
    assert stage.run("canary", held, base, head, "report", RETUNE=codes) == code
    imported, measured, *checked = stage.called()
    assert imported == f"base import {held}"
    assert measured.startswith("base retune --budget 15m --report ")
    assert checked == ["head retune --check --slower 10% --report report"] * (len(codes.split()) - 1)
    assert (stage.folder / "summary").read_text() == REPORT
    assert (stage.folder / "report/retune.md").read_text() == REPORT


def test_a_change_that_takes_a_config_away_is_no_pass(stage: Stage) -> None:
    base, head = stage.program("base", TUNER), stage.program("head", TUNER.replace("[1, 2]", "[1]"))
    held = bundle(stage.folder / "held.json", "one")
    assert stage.run("canary", held, base, head, "report") == 1
    base.write_text(TUNER.replace("{}}", '{"retired": 1}}'))  # it works no longer in the base either
    assert stage.run("canary", held, base, head, "report", CALLS=stage.folder / "again") == 0


def test_the_gate_reads_and_writes_a_copy_that_it_removes(stage: Stage) -> None:
    told = 'echo "$TUNER_DB" >>"$CALLS"'
    tuner = stage.program("tuner", TUNER.replace("command=$1", f"command=$1; {told}"))
    assert stage.run("canary", "answers.db", tuner, tuner, "report", TUNER_DB="/the/real.db") == 0
    calls = stage.called()
    (scratch,) = set(calls[1::2])
    assert calls[0] == f"tuner db backup --db answers.db {scratch}"
    assert not Path(scratch).parent.exists()


@pytest.mark.parametrize("code", [2, 3, 5])
def test_the_gate_ends_if_the_base_cannot_be_measured(stage: Stage, code: int) -> None:
    tuner = stage.program("tuner", TUNER)
    assert stage.run("canary", "answers.json", tuner, tuner, "report", RETUNE=code) == code
    assert len(stage.called()) == 2


def replaying(space: str) -> str:
    """Return a program that is `tuner` on a machine whose card is a recorded space."""
    return f"""#!/bin/sh
case $1 in
  retune) set -- "$@" --replay {space} ;;
  work) set -- "$@" --replay auto ;;
esac
exec {sys.executable} -P -m tuner "$@"
"""


@dataclass(frozen=True)
class Slowed:
    """A recorded space, the same with a slower kernel, and a bundle with the answer of a search of the first."""

    before: str
    after: str
    bundle: str


@pytest.fixture
def slowed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Slowed:
    tuner = Invoked.alone(stage.folder, monkeypatch)
    stage.environment["TUNER_DB"] = str(tuner.db)
    spaces = stage.folder / "spaces"
    spaces.mkdir()
    old, new = before(), after(before(), lambda _: 1.3, changed={"source": "0"})
    files = written(old, spaces), written(new, spaces)
    problem = [f"--{name}={value}" for name, value in old.problem.values.items()]
    for command in (["search", "softmax", *problem, "--replay", files[0]], ["export", "held.json"]):
        assert tuner(*command).exception is None
    return Slowed(*files, str(stage.folder / "held.json"))


def test_a_night_with_a_slower_kernel_is_red_and_its_report_and_answers_are_there(stage: Stage, slowed: Slowed) -> None:
    stage.program("tuner", replaying(slowed.after))
    assert stage.run("nightly", "report", "softmax", "--budget", "5m") == 4
    report = json.loads((stage.folder / "report/retune.json").read_text())
    assert [finding["cause"] for finding in report["findings"]] == ["slower: kernel or compiler"]
    assert "slower" in (stage.folder / "summary").read_text()
    answers = json.loads((stage.folder / f"report/answers/{DEVICE}.json").read_text())["answers"]
    assert len(answers) == 2  # one for each source of the kernel


def test_the_gate_finds_a_slower_kernel_by_answers_of_a_bundle_and_changes_nothing(
    stage: Stage, slowed: Slowed
) -> None:
    base, head = stage.program("base", replaying(slowed.before)), stage.program("head", replaying(slowed.after))
    stored = (stage.folder / "tuner.db").read_bytes()
    assert stage.run("canary", slowed.bundle, base, head, "report") == 4
    assert "slower" in (stage.folder / "report/retune.md").read_text()
    assert (stage.folder / "tuner.db").read_bytes() == stored


CRONJOB = ROOT / "docker" / "kubernetes" / "retune-cronjob.yaml"


def test_an_installation_is_of_the_checkout_and_its_own_versions(stage: Stage) -> None:
    """A stand-in for `python3 -m venv` makes a pip that writes down its arguments."""
    pip = 'printf "#!/bin/sh\\necho \\$* >>$CALLS" >"$4/bin/pip"'
    stage.program("python3", f'#!/bin/sh\nmkdir -p "$4/bin"\n{pip}\nchmod +x "$4/bin/pip"\n')
    (stage.folder / "base").mkdir()
    assert stage.run("install-gpu", "base/.venv", "base") == 0
    (call,) = stage.called()
    base = stage.folder / "base"
    assert call.endswith(f"--constraint {base}/constraints.txt {base}[search,gpu,postgres]")


PAGE = (ROOT / "docs" / "nightly.md").read_text()
COMMANDS = [line.partition("    #")[0] for line in re.findall(r"^ *\$ (.+)$", PAGE, re.MULTILINE)]


def test_the_scripts_run_as_the_page_says(stage: Stage) -> None:
    for place in ("clone/.venv/bin", "base/.venv/bin", "clone/answers"):
        (stage.folder / place).mkdir(parents=True)
    tuner = stage.program("tuner", TUNER)
    for place in ("clone", "base"):
        shutil.copy(tuner, stage.folder / place / ".venv/bin")
    bundle(stage.folder / "clone/answers/canary.json")
    night, gate = (shlex.split(line) for line in COMMANDS if line.startswith(("scripts/nightly", "scripts/canary")))
    environment = {"RETUNE": "0 0 0", "BUNDLE": stage.folder / "clone/answers/canary.json"}
    for script, *words in (night, gate):
        assert stage.run(script.removeprefix("scripts/"), *words, folder=stage.folder / "clone", **environment) == 0
    assert len([call for call in stage.called() if " retune " in call]) == 3


def test_what_the_page_installs_and_starts_is_there() -> None:
    paths = re.findall(r"(?:systemd|docker/kubernetes)/[\w-]+\.\w+", "\n".join(COMMANDS))
    assert len(paths) == 3
    assert all((ROOT / path).is_file() for path in paths)
    units = {Path(path).name for path in paths if path.startswith("systemd/")}
    assert set(re.findall(r"systemctl .* (\S+)$", "\n".join(COMMANDS), re.MULTILINE)) == units
    (cronjob,) = [each for each in yaml.safe_load_all(CRONJOB.read_text()) if each["kind"] == "CronJob"]
    assert f"--from=cronjob/{cronjob['metadata']['name']}" in "\n".join(COMMANDS)
    variables = set(re.findall(r"TUNER_(?:NIGHTS|CANARY|DB|GPUS)", PAGE))
    workflows = "".join((ROOT / f".github/workflows/{name}.yml").read_text() for name in ("nightly", "canary"))
    assert (
        variables
        == {name for name in variables if f".{name}" in workflows}
        == {"TUNER_NIGHTS", "TUNER_CANARY", "TUNER_DB", "TUNER_GPUS"}
    )


def test_a_timer_starts_the_same_script_and_systemd_understands_its_units(tmp_path: Path) -> None:
    units = sorted((ROOT / "systemd").iterdir())
    assert [unit.name for unit in units] == ["triton-tuner-retune.service", "triton-tuner-retune.timer"]
    service = units[0].read_text()
    assert "Type=oneshot\n" in service  # the timer does not start what runs
    assert "ExecStart=/opt/triton-tuner/scripts/nightly " in service
    assert "PrivateTmp" not in service  # the lock of the card is a file in /tmp
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    for unit in units:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/triton-tuner", str(ROOT)))
    command: list[str | Path] = ["systemd-analyze", "verify", *(tmp_path / unit.name for unit in units)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_cronjob_starts_the_same_script_on_one_gpu_and_never_twice() -> None:
    volume, cronjob = yaml.safe_load_all(CRONJOB.read_text())
    assert cronjob["spec"]["concurrencyPolicy"] == "Forbid"
    job = cronjob["spec"]["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == container["name"]
    assert container["command"][0] == "nightly"
    assert "RUN install scripts/nightly /opt/tuner/bin/nightly" in (ROOT / "docker" / "search.Dockerfile").read_text()
    assert "!scripts/nightly" in (ROOT / ".dockerignore").read_text().splitlines()
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert container["env"][0]["valueFrom"]["secretKeyRef"]["key"] == container["env"][0]["name"] == "TUNER_DB"
    claims = [each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"] if "persistentVolumeClaim" in each]
    assert claims == [volume["metadata"]["name"]]


def test_the_cronjob_is_valid() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for document in yaml.safe_load_all(CRONJOB.read_text()):
        kubernetes_validate.validate(document, "1.31", strict=True)
