"""Suites: each that ships runs on its cards, and a user's file is read or refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import A100, H200, able
from scripted import TOY

from tuner import catalog
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Signature
from tuner.records import Device
from tuner.suites.selection import select_problems
from tuner.suites.suite import Suite, load, names, size

H100 = Device("NVIDIA H100 80GB HBM3", (9, 0), 132, 85_029_158_912, 52_428_800, 232_448, "10de:2330")


def signature(reference: str) -> Signature:
    return catalog.resolve(reference).signature


def suite(folder: Path, content: object, dtype: str | None = None) -> Suite:
    file = folder / "mine.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return load(str(file), signature, dtype)


@pytest.mark.parametrize("card", [H100, H200, A100], ids=lambda card: card.id)
@pytest.mark.parametrize("name", names())
def test_each_problem_of_a_shipped_suite_has_a_default_on_the_card(name: str, card: Device) -> None:
    entries = load(name, signature).entries
    assert len(entries) == size(name) > 0
    for entry in entries:
        kernel = catalog.load(entry.reference)
        if not able(kernel.op, card.limits):
            continue
        default = kernel.default_config(entry.problem, card.limits)
        assert kernel.valid(entry.problem, default, card.limits), (entry.problem.text, default)
        assert kernel.bytes(entry.problem) < card.memory_bytes / 4


def test_problems_of_the_shipped_suites() -> None:
    llama = [entry.problem for entry in load("llama-3-8b", signature).entries]
    assert {(p["N"], p["K"]) for p in llama} == {(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)}
    assert {p["M"] for p in llama} == {1, 16, 64, 256, 1024, 4096}
    assert {p["layout"] for p in llama} == {"nn", "nt"}
    assert len(llama) == 4 * 6 * 2
    in_8_bits = [entry.problem for entry in load("llama-3-8b-fp8", signature).entries]
    assert {(p["N"], p["K"]) for p in in_8_bits} == {(p["N"], p["K"]) for p in llama}
    assert len(in_8_bits) == 4 * (6 + 6 + 5)  # torch multiplies no single row in blocks
    lecture = [entry.problem.text for entry in load("lecture", signature).entries]
    assert lecture == ["softmax M=1823 N=781 dtype=fp32", "transpose M=8192 N=8192 dtype=fp32"]
    squares = [entry.problem.sizes for entry in load("squares", signature).entries]
    assert squares[0] == (1024,) * 3
    assert squares[-1] == (8192,) * 3


def test_a_dtype_replaces_that_of_all_problems_and_no_problem_is_repeated(tmp_path: Path) -> None:
    content = [{"op": "gemm", "M": 64}, {"op": "gemm", "M": 64, "dtype": "fp32"}, {"op": "softmax", "M": 8}]
    assert [entry.problem.dtype for entry in suite(tmp_path, content).entries] == ["bf16", "fp32", "fp32"]
    texts = [entry.problem.text for entry in suite(tmp_path, content, "fp16").entries]
    assert texts == ["gemm M=64 N=64 K=64 dtype=fp16", "softmax M=8 N=8 dtype=fp16"]


def test_only_keeps_problems_with_all_the_values() -> None:
    llama = load("llama-3-8b", signature)
    assert len(llama.only({"op": "gemm", "M": "16", "layout": "nt"}).entries) == 4
    with pytest.raises(UsageError, match=r"^no problem of llama-3-8b has M=17; the first is gemm M=1 N=6144"):
        llama.only({"M": "17"})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[", "is not JSON: Expecting value"),
        ({"op": "gemm"}, r'a suite is a list of objects such as \{"op": "gemm", "M": 4096\}, and'),
        ([], "a suite is a list of objects"),
        ([{"M": 1}], "a suite is a list of objects"),
        ([{"op": "gemm", "M": 1}, {"op": "gemm"}], "mine.json, problem 2: gemm needs M; give M=SIZE"),
        (
            [{"op": "gemm", "M": 1, "P": 2}],
            "problem 1: gemm is described by M, N, K, dtype, layout, bias, activation, precision",
        ),
        ([{"op": "nonsense"}], "no kernel is called 'nonsense'"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, content: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        suite(tmp_path, content)


def test_an_unknown_suite_is_refused_with_the_known_names() -> None:
    with pytest.raises(
        UnknownName, match=rf"^no suite is called 'lama'; there are {', '.join(names())}, or give a file.json$"
    ):
        load("lama", signature)


def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 200_000)
    with pytest.raises(UsageError, match=r"the suite .*deep.json is not JSON"):
        load(str(file), lambda reference: TOY)
    with pytest.raises(UsageError, match=r"the shapes in .*deep.json cannot be read"):
        select_problems("toy", TOY, {}, shapes=file, model=None, tp=None)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("4096,4096,4096,16", "4 cells under 3 columns"),
        ("4096,4096", "2 cells under 3 columns"),
        ("4096,4096,", "2 cells under 3 columns"),
        ("4096", "1 cell under 3 columns"),
        ("4096,,4096", "no cell under N"),
    ],
)
def test_a_row_of_shapes_has_a_cell_for_each_column(tmp_path: Path, row: str, says: str) -> None:
    file = tmp_path / "shapes.csv"
    file.write_text(f"M,N,K\n16,64,128\n\n{row}\n")
    with pytest.raises(UsageError, match=rf"shapes.csv, line 4: {says}$"):
        select_problems("gemm", signature("gemm"), {}, shapes=file, model=None, tp=None)


def test_a_spreadsheet_ends_its_rows_with_empty_cells(tmp_path: Path) -> None:
    file = tmp_path / "shapes.csv"
    file.write_text("M,N,K,,\n16,64,128,,\n,,,,\n")
    (entry,) = select_problems("gemm", signature("gemm"), {}, shapes=file, model=None, tp=None).entries
    assert entry.problem.sizes == (16, 64, 128)
