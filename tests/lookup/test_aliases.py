"""Aliases: one product under several names is one card, and products of similar names are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from helpers import H200
from served import answer, problem, serving

from tuner.api.app import create_app
from tuner.api.schemas import BestConfigDocument
from tuner.cli.best import command as best
from tuner.db.store import Store
from tuner.lookup.devices import aliases, stored_as
from tuner.records import Device, RooflineLimits

GB = 1_000_000_000
SXM = Device("NVIDIA H100 80GB HBM3", (9, 0), 132, 85 * GB, 52_428_800, 232_448, "10de:2330")
PRODUCTS = (
    SXM,
    Device("NVIDIA H100 PCIe", (9, 0), 114, 85 * GB, 52_428_800, 232_448, "10de:2331"),
    Device("NVIDIA H100 NVL", (9, 0), 132, 100 * GB, 62_914_560, 232_448, "10de:2321"),
    Device("NVIDIA H20", (9, 0), 78, 102 * GB, 62_914_560, 232_448, "10de:2329"),
    Device("NVIDIA H20-3e", (9, 0), 78, 151 * GB, 62_914_560, 232_448, "10de:232c"),
    H200,
    replace(SXM, mig="1g.10gb", sm_count=16, memory_bytes=10 * GB, l2_bytes=6_553_600),
    replace(SXM, mig="1g.20gb", sm_count=16, memory_bytes=20 * GB, l2_bytes=13_107_200),
    replace(SXM, mig="7g.80gb"),
)
RENAMED = replace(SXM, name="H100 SXM5 80GB", memory_bytes=SXM.memory_bytes - GB)
"""As another host and driver call it, with ECC's share taken off its memory."""


def test_no_product_or_slice_answers_for_another() -> None:
    assert len({card.id for card in PRODUCTS}) == len(PRODUCTS)
    for one, other in permutations(PRODUCTS, 2):
        assert not one.is_same_card(other)
        assert stored_as(one, [other.id], [other]) == one.id
    assert aliases([card.id for card in PRODUCTS], PRODUCTS) == {}


@pytest.mark.parametrize("pci_id", ["10de:2329", "10de:232c", ""])
def test_and_h20_3e_differ_by_memory_too(pci_id: str) -> None:
    h20, h20_3e = (replace(card, pci_id=pci_id) for card in PRODUCTS[3:5])
    assert (h20.name, h20_3e.name) == ("NVIDIA H20", "NVIDIA H20-3e")
    assert stored_as(h20, [h20_3e.id], [h20_3e]) == "nvidia-h20"
    assert stored_as(h20_3e, [h20.id], [h20]) == "nvidia-h20-3e"


def test_a_bare_name_is_resolved_by_what_the_card_is() -> None:
    stored = [card.id for card in PRODUCTS]
    for card in PRODUCTS[:3]:
        assert stored_as(replace(card, name="NVIDIA H100"), stored, PRODUCTS) == card.id
    unknown = replace(SXM, name="NVIDIA H100", pci_id="")  # NVML is not installed: nobody can tell
    assert stored_as(unknown, stored, PRODUCTS) == "nvidia-h100"


def test_a_card_under_another_name_is_the_same_card() -> None:
    assert SXM.is_same_card(RENAMED)
    assert stored_as(RENAMED, [SXM.id], PRODUCTS) == SXM.id
    assert stored_as(RENAMED, [SXM.id, RENAMED.id], [*PRODUCTS, RENAMED]) == RENAMED.id
    assert aliases([SXM.id], [SXM, RENAMED, H200]) == {"h100-sxm5-80gb": SXM.id}


class TestB13AnAnswerUnderAnotherName:
    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
        """Tuned on the card under one name; a host where it has another has been here."""
        monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
        made = Store.open(tmp_path / "tuner.db")
        answer(made, problem(M=64), SXM)
        answer(made, problem(M=64), H200)
        made.keep_roofline_limits(RENAMED, RooflineLimits(3000.0, {}, {}))
        yield made
        made.close()

    def test_the_service_answers_and_says_so(self, store: Store) -> None:
        with serving(create_app(store)) as http:
            body = http.get("/best-config?op=gemm&M=64&device=h100-sxm5-80gb").json()
            BestConfigDocument.model_validate(body)
            assert (body["match"], body["device"], body["alias"]) == ("exact", SXM.id, RENAMED.id)
            assert "alias" not in http.get(f"/best-config?op=gemm&M=64&device={SXM.id}").json()
            assert http.get("/best-config?op=gemm&M=64&device=nvidia-h100-pcie").status_code == 404

    def test_tuner_best_answers_and_says_so(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["gemm", "--M", "64", "--device", RENAMED.id]
        assert best.main(words, standalone_mode=False) == 0
        assert f"{RENAMED.id} is the same card as {SXM.id}, where it was tuned" in capsys.readouterr().out
        assert best.main([*words, "--json"], standalone_mode=False) == 0
        assert json.loads(capsys.readouterr().out)["alias"] == RENAMED.id
