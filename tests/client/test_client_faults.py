"""Misspelt variables and unreadable data give a warning; the client and its other answers stay."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import faults
import pytest
from served import serving

from tuner.api.app import create_app
from tuner.client import Client
from tuner.client.settings import RemoteSettings
from tuner.client.sources import BundleSource, ServiceSource
from tuner.db.store import Store
from tuner.errors import TunerError
from tuner.lookup import bundle

HURT_DEVICE, SOUND_DEVICE = faults.HURT_AT.device.id, faults.SOUND_AT.device.id


pytestmark = pytest.mark.usefixtures("nothing_named")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("whole") / "tuner.db"
    faults.make(file)
    return file


def matches(client: Client) -> tuple[str, str]:
    """Return how the sound problem and the other one are matched."""
    return (
        client.best_config("sound", device=SOUND_DEVICE, M=64).match,
        client.best_config("scale", device=HURT_DEVICE, M=64).match,
    )


HURTING = [
    ("answers", "latency_us", "-9e999"),
    ("answers", "config", "'{\"NO_KNOB\": 1}'"),
    ("answers", "ties", "'7'"),
    ("runs", "settings", "'{'"),
    ("kernels", "signature", "'[]'"),
    ("devices", "facts", faults.INVALID_UTF8),
    ("problems", "parameters", "NULL"),
    ("environments", "driver", "X'00ff'"),
]


class TestSources:
    @pytest.mark.parametrize(("table", "column", "fault"), HURTING)
    def test_a_database_and_its_bundle_and_its_service(
        self,
        whole: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        table: str,
        column: str,
        fault: str,
    ) -> None:
        file = tmp_path / "tuner.db"
        shutil.copy(whole, file)
        faults.hurt(file, table, column, fault)
        monkeypatch.setenv("TUNER_DB", str(file))
        assert matches(Client()) == ("exact", "none")
        assert [line for line in caplog.messages if "row 1 of" in line]
        store = Store.open(file)
        written = tmp_path / "answers.json"
        bundle.write(written, store.snapshot, [*store.signatures().values()], store.answers())
        assert matches(Client(BundleSource(written))) == ("exact", "none")
        with serving(create_app(store)) as served:
            assert matches(Client(ServiceSource(str(served.base_url)))) == ("exact", "none")
        store.close()
        assert not [record for record in caplog.records if record.levelno > logging.WARNING]

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda document: document["answers"][0].update(latency_us=0),
            lambda document: document["answers"][0]["config"].update(NO_KNOB=1),
            lambda document: document["answers"].__setitem__(0, None),
            lambda document: document["signatures"].__setitem__(0, {"op": "scale"}),
            lambda document: document["devices"].__setitem__(0, {"name": 7}),
            lambda document: document["transfers"].append([1, 2, 3]),
        ],
    )
    def test_a_part_of_a_bundle(
        self, whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[dict[str, Any]], object]
    ) -> None:
        store = Store.open(shutil.copy(whole, tmp_path / "tuner.db"))
        document = json.loads(bundle.packed(store.snapshot, [*store.signatures().values()], store.answers()))
        store.close()
        spoil(document)
        del document["sha256"]
        content = json.dumps(document, separators=(",", ":")).encode()[1:]
        file = tmp_path / "answers.json"
        file.write_bytes(b'{"sha256":"%b",%b' % (sha256(content).hexdigest().encode(), content))
        client = Client(BundleSource(file))
        assert matches(client)[0] == "exact"
        assert any(
            f"{file}: 1 answers are skipped" in line or "answers are skipped" in line for line in caplog.messages
        )


NO_URLS = [
    "nonsense", "localhost:8000", "http://", "ftp://host", "http://[::1", "http://a b", "http://host:99999",
    "http://host:0", "http://ho\tst", "http://host/\x01", "http://host\n", "http://\udcff.example", "http://host:\uff18\uff10",
    "postgresql://me@host/name", "http://me:secret@host", "http://host?x=1",
]  # fmt: skip


class TestEnvironment:
    @pytest.mark.parametrize("url", NO_URLS)
    def test_a_url_that_is_none_costs_one_warning(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str
    ) -> None:
        monkeypatch.setenv("TUNER_URL", url)
        client = Client()
        for M in (1, 2, 3):
            assert client.best_config("gemm", device=SOUND_DEVICE, M=M).match == "none"
        assert client.best_config("softmax", device=SOUND_DEVICE, M=1).match == "none"
        (line,) = caplog.messages
        assert "TUNER_URL is http://HOST:PORT or https://HOST, not " in line
        assert "secret" not in line
        with pytest.raises(TunerError, match="TUNER_URL is http"):
            client.refresh()

    def test_a_host_that_has_no_name_costs_one_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        client = Client(ServiceSource("http://ex..ample:1", RemoteSettings(timeout_s=5)))
        assert {client.best_config("gemm", device=SOUND_DEVICE, M=M).match for M in (1, 2)} == {"none"}
        (line,) = caplog.messages
        assert "cannot be reached" in line

    @pytest.mark.parametrize("name", ["TUNER_DB", "TUNER_SNAPSHOT"])
    def test_a_place_that_is_none_costs_one_warning(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
    ) -> None:
        monkeypatch.setenv(name, "mysql://host/name")
        client = Client()
        assert {client.best_config("gemm", device=SOUND_DEVICE, M=M).match for M in (1, 2)} == {"none"}
        (line,) = caplog.messages
        assert "TUNER_DB: a database is the path" in line or "mysql:/host/name cannot be read: No such file" in line

    @pytest.mark.parametrize("value", ["1", "true", "TRUE", "yes", "Yes", "on", "ON", " 1 ", "t", "y"])
    def test_lookups_are_disabled(
        self, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
    ) -> None:
        monkeypatch.setenv("TUNER_DB", str(shutil.copy(whole, tmp_path / "tuner.db")))
        monkeypatch.setenv("TUNER_DISABLE", value)
        assert matches(Client()) == ("disabled", "disabled")
        assert caplog.messages == []

    @pytest.mark.parametrize("value", ["", "0", "false", "False", "no", "OFF", "n", " "])
    def test_lookups_are_not_disabled(
        self, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
    ) -> None:
        monkeypatch.setenv("TUNER_DB", str(shutil.copy(whole, tmp_path / "tuner.db")))
        monkeypatch.setenv("TUNER_DISABLE", value)
        assert matches(Client()) == ("exact", "exact")
        assert caplog.messages == []

    @pytest.mark.parametrize("value", ["2", "disable", "\uff11", "ja"])
    def test_another_spelling_disables_with_a_warning(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
    ) -> None:
        monkeypatch.setenv("TUNER_DISABLE", value)
        assert matches(Client()) == ("disabled", "disabled")
        assert caplog.messages == [
            f"TUNER_DISABLE is 1 or 0, true or false, yes or no, on or off, not {value!r}; it is taken for 1"
        ]

    @pytest.mark.parametrize("value", ["\uff160", "1_0", "+5", " 5", "1e3", "nan", "inf", "-1", "0", "soon"])
    def test_an_interval_that_is_no_number_is_none(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
    ) -> None:
        monkeypatch.setenv("TUNER_REFRESH_S", value)
        client = Client()
        client.best_config("gemm", device=SOUND_DEVICE, M=1)
        assert not client.is_refreshing
        assert f"TUNER_REFRESH_S is a number of seconds, not {value!r}; nothing is refreshed" in caplog.messages
