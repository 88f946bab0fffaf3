"""A row that cannot be read costs that row, and never the service, its restart or another answer."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

import faults
import httpx
import pytest
from faults import SOUND_ID
from starlette.testclient import TestClient

from tuner.api.app import create_app
from tuner.api.settings import ServiceSettings
from tuner.db.store import Store

SOUND = ("op=sound&M=64&device=nvidia-h200", "op=sound&device=nvidia-h200")
HURT = ("op=scale&M=64&device=nvidia-a100-sxm4-80gb", "op=scale&device=nvidia-a100-sxm4-80gb")
LISTS = ("runs", "problems", "kernels", "devices", "requests", "jobs")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("whole") / "tuner.db"
    faults.make(file)
    return file


async def served(file: Path, fault: str) -> int:
    """Return the number of rows that are left out by a service that starts on a database with this fault.

    It is asked for everything that it serves, by a client in its own event loop: a `TestClient` starts a thread for
    each request.
    """
    app = create_app(Store.open(file), settings=ServiceSettings(max_age_s=600))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        ready = await client.get("/readyz")
        assert ready.status_code == 200, fault
        found = await client.get(f"/best-config?{SOUND[0]}")
        assert (found.status_code, found.json()["match"]) == (200, "exact"), (fault, found.text)
        assert len((await client.get(f"/table?{SOUND[1]}")).json()["answers"]) == 1, fault
        for path in (f"best-config?{HURT[0]}", f"table?{HURT[1]}", f"table?{HURT[1]}&N=64", "runs/1"):
            assert (await client.get(f"/{path}")).status_code in (200, 404), (fault, path)
        left_out = 2 - int(ready.json()["answers"])
        for name in LISTS:
            listed = await client.get(f"/{name}")
            assert listed.status_code == 200, (fault, name, listed.text)
            ids = [id_of(item) for item in listed.json()["items"]]
            assert SOUND_ID in ids, (fault, name)
            left_out += 2 - len(ids)
        assert (await client.get(f"/runs/{SOUND_ID}")).status_code == 200, fault
        metrics = (await client.get("/metrics")).text
        assert left_out == 0 or "tuner_unreadable_rows{table=" in metrics, (fault, left_out)
    return left_out


def id_of(item: dict[str, Any]) -> int:
    return int(item.get("id") or item["run"])


@pytest.mark.parametrize(("table", "column"), faults.columns(), ids=lambda name: name)
def test_a_fault_in_any_column_costs_its_row_at_most(
    whole: Path, tmp_path: Path, table: str, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number, fault in enumerate(faults.some_faults(table, column)[::2]):  # tests/db reads the others too
        caplog.clear()
        file = tmp_path / f"{number}.db"
        shutil.copy(whole, file)
        faults.hurt(file, table, column, fault)
        left_out = asyncio.run(served(file, fault))
        warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert all("is left out, since it cannot be read: " in line for line in warned), (fault, warned)
        assert left_out == 0 or any("row 1 of " in line for line in warned), (fault, left_out, warned)


def test_a_row_that_is_hurt_while_the_service_runs_costs_that_row(whole: Path, tmp_path: Path) -> None:
    file = tmp_path / "tuner.db"
    shutil.copy(whole, file)
    with TestClient(create_app(Store.open(file))) as client:
        for table, column, fault in (
            ("devices", "facts", "'{\"name'"),
            ("answers", "latency_us", "-9e999"),
            ("runs", "settings", "X'ff'"),
            ("kernels", "signature", "'[]'"),
        ):
            faults.hurt(file, table, column, fault)
            assert client.get(f"/best-config?{SOUND[0]}").status_code == 200
            assert client.get(f"/runs/{SOUND_ID}").status_code == 200
        metrics = client.get("/metrics").text
    assert 'tuner_unreadable_rows{table="devices"} 1.0' in metrics
