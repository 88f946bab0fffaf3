"""The files of `docker/`, without Docker: commands run in an environment like the images', at other paths."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import postgres
import pytest
import yaml
from helpers import until
from ports import free_ports

DOCKER = Path(__file__).parents[1] / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
PAGE = (DOCKER.parent / "docs" / "docker.md").read_text()
COMMANDS = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
SPACE = "gemm-4096x4096x4096-bf16-nvidia-h200"


class Image:
    """The last stage of a Dockerfile."""

    def __init__(self, name: str) -> None:
        text = re.sub(r"^#.*\n", "", (DOCKER / name).read_text(), flags=re.MULTILINE).replace("\\\n", " ")
        lines = [line.partition(" ") for line in text.splitlines() if line]
        last = max(number for number, (word, _, _) in enumerate(lines) if word == "FROM")
        self.installs = re.findall(r"pip install (.+)", text)
        self.last_stage = {word: rest.strip() for word, _, rest in lines[last:]}

    def command(self, word: str) -> list[str]:
        command: list[str] = json.loads(self.last_stage[word])
        return command

    @property
    def environment(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in shlex.split(self.last_stage["ENV"]))

    @property
    def check(self) -> list[str]:
        command: list[str] = json.loads(self.last_stage["HEALTHCHECK"].partition("CMD ")[2])
        return command


SERVE, SEARCH = Image("serve.Dockerfile"), Image("search.Dockerfile")


@pytest.mark.parametrize("image", [SERVE, SEARCH])
def test_an_image_runs_without_rights_in_an_empty_folder_and_installs_pinned_versions(image: Image) -> None:
    assert int(image.last_stage["USER"]) > 0
    assert image.last_stage["WORKDIR"] == "/work"
    assert "/data" in image.last_stage["VOLUME"]
    assert image.last_stage["COPY"] == "--from=build /opt/tuner /opt/tuner"
    (install,) = image.installs
    assert "--constraint constraints.txt" in install


def test_the_service_is_installed_without_torch_and_the_worker_with_it() -> None:
    assert SERVE.installs[0].endswith('".[serve,postgres]"')
    assert SEARCH.installs[0].endswith('".[${EXTRAS}]"')
    (extras,) = re.findall(r"^ARG EXTRAS=(.+)$", (DOCKER / "search.Dockerfile").read_text(), re.MULTILINE)
    assert extras == "search,gpu,postgres"
    assert SEARCH.environment["TRITON_CACHE_DIR"].startswith("/cache/")
    assert SEARCH.environment["XDG_CACHE_HOME"] == "/cache"


def test_our_containers_are_hardened_and_secrets_are_files() -> None:
    for name in ("upgrade", "api", "worker"):
        service = SERVICES[name]
        assert service["read_only"] is True
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    for service in SERVICES.values():
        words = [*service.get("environment", {}).items(), *service.get("command", [])]
        mentioned = set(re.findall(r"/run/secrets/(\w+)", str(words)))
        assert mentioned == set(service["secrets"]) <= set(COMPOSE["secrets"])
    assert SERVICES["api"]["ports"] == ["127.0.0.1:8000:8000"]
    assert SERVICES["worker"]["command"] == [*SEARCH.command("CMD"), "--gpu", "all"]
    (cards,) = SERVICES["worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert cards["count"] == "all"
    assert SERVICES["api"]["command"][: len(SERVE.command("CMD"))] == SERVE.command("CMD")


def test_the_page_names_what_is_there() -> None:
    images = {service["image"]: service["build"]["dockerfile"] for service in SERVICES.values() if "build" in service}
    for image, file in images.items():
        assert (DOCKER.parent / file).is_file()
        assert f"| `{image}` | `{file}` |" in PAGE
    for line in COMMANDS:
        assert set(re.findall(r"--file (\S+)", line)) <= {"docker/compose.yaml", "docker/shared.yaml", *images.values()}
        assert set(re.findall(r"--tag (\S+)", line)) <= set(images)
    assert set(re.findall(r"> (docker/secrets/\w+)", "\n".join(COMMANDS))) == {
        f"docker/{secret['file']}" for secret in COMPOSE["secrets"].values()
    }
    assert "docker/secrets/" in (DOCKER.parent / ".gitignore").read_text().splitlines()


def test_workers_of_other_hosts_reach_the_database() -> None:
    """The port is published only by the second file, and the host's name replaces that of the service."""
    assert "ports" not in SERVICES["db"]
    over = yaml.safe_load((DOCKER / "shared.yaml").read_text())["services"]
    assert set(over) == {"db"} <= set(SERVICES)
    (port,) = over["db"]["ports"]
    assert re.fullmatch(r"\$\{TUNER_DB_LISTEN:\?[^}]+\}:5432:5432", port)
    assert "@${TUNER_DB_HOST:-db}/" in SERVICES["worker"]["environment"]["TUNER_DB"]


@dataclass(frozen=True)
class Host:
    """Stand-ins here for the paths of the containers."""

    folder: Path
    installed: Path
    database: str
    port: int

    def mapped(self, text: str) -> str:
        text = text.replace("postgresql://tuner@${TUNER_DB_HOST:-db}/tuner?", f"{self.database}&")
        text = text.replace("/opt/tuner", str(self.installed)).replace("8000", str(self.port))
        return re.sub(r"(^|=)/(cache|data|run/secrets)\b", rf"\1{self.folder}/\2", text)

    def environment(self, image: Image, service: Mapping[str, Any]) -> dict[str, str]:
        set_there = {**image.environment, **service.get("environment", {})}
        home = {"HOME": str(self.folder / "nothing"), "TMPDIR": str(self.folder / "tmp")}
        return {name: self.mapped(value) for name, value in set_there.items()} | home

    def start(self, image: Image, name: str, *more: str) -> subprocess.Popen[bytes]:
        service = SERVICES[name]
        command = [*image.command("ENTRYPOINT"), *service.get("command", image.command("CMD")), *more]
        return self._run(command, self.environment(image, service))

    def check(self, image: Image, name: str) -> int:
        return self._run(image.check, self.environment(image, SERVICES[name])).wait(30)

    def _run(self, command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        found = [str(self.installed / "bin" / command[0]), *map(self.mapped, command[1:])]
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(found, cwd=self.folder / "nothing", env=environment, stdout=log, stderr=log)


@pytest.fixture
def host(tmp_path: Path, installed: Path, cluster: postgres.Cluster) -> Host:
    for name in ("nothing", "tmp", "cache", "data", "run/secrets"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "nothing").chmod(0o555)
    for name in COMPOSE["secrets"]:
        (tmp_path / "run" / "secrets" / name).write_text(f"secret {name}\n")
    (port,) = free_ports(1)
    return Host(tmp_path, installed, cluster.empty(), port)


def is_open(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def ended(process: subprocess.Popen[bytes], code: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process, then send SIGTERM as Docker does, and assert its exit code."""
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == code
    finally:
        process.kill()
        process.wait()


def test_a_job_posted_to_the_service_is_tuned_by_the_worker(host: Host) -> None:
    assert host.start(SERVE, "upgrade").wait(60) == 0
    with (
        ended(host.start(SERVE, "api"), -signal.SIGTERM),  # uvicorn, once it has closed all
        ended(host.start(SEARCH, "worker", "--replay", SPACE, "--poll", "0.2s", "--trials", "5")),
        httpx.Client(base_url=f"http://127.0.0.1:{host.port}") as client,
    ):
        until(lambda: is_open(host.port), 60)
        assert host.check(SERVE, "api") == 0
        query: dict[str, str | int] = {"op": "gemm", "M": 4096, "device": "nvidia-h200"}
        assert client.post("/jobs", json=query).status_code == 401
        token, curl = [line for line in COMMANDS if "TOKEN" in line]
        story = f"{token}; {curl}".replace("docker/secrets", str(host.folder / "run" / "secrets"))
        story = story.replace("curl", "curl --fail --noproxy '*'").replace("8000", str(host.port))
        assert subprocess.run(["sh", "-c", story], check=False).returncode == 0
        until(lambda: client.get("/best-config", params=query).status_code == 200, 60)
        (job,) = client.get("/jobs").json()["items"]
        assert (job["status"], job["tries"]) == ("done", 1)
    assert host.check(SERVE, "api") != 0
    assert list((host.folder / "nothing").iterdir()) == []
    assert list((host.folder / "data").iterdir()) == []
    assert os.listdir(host.folder / "tmp") == []
