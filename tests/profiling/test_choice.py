"""The config that is profiled, and the knobs that move a bottleneck."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import H200

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.spec import Config, Knob, Value
from tuner.profiling.choice import choose_config
from tuner.profiling.knobs import Move, levers

USUAL: dict[str, Value] = {
    "VARIANT": "persistent", "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "STORES": 2, "num_warps": 8,
    "num_stages": 4,
}  # fmt: skip
GEMM = catalog.resolve("gemm")
KERNEL = replace(GEMM, default=lambda problem, limits: GEMM.signature.config(USUAL))
PROBLEM = KERNEL.signature.problem({"M": 4096})
DEFAULT = KERNEL.default_config(PROBLEM, H200.limits)
STORED = KERNEL.signature.config({**DEFAULT, "GROUP_M": 4})


def chosen(given: str | None, stored: bool = True) -> tuple[dict[str, object], str]:
    config, source = choose_config(KERNEL, PROBLEM, H200.limits, STORED if stored else None, given)
    return dict(config), source


def test_the_answer_comes_before_the_default_and_a_given_config_before_both() -> None:
    assert chosen(None) == (dict(STORED), "answer")
    assert chosen(None, stored=False) == (dict(DEFAULT), "default")
    assert chosen(STORED.text, stored=False) == (dict(STORED), "given")
    assert chosen('{"GROUP_M": 8}') == ({**STORED, "GROUP_M": 8}, "given")


def test_an_answer_from_before_a_knob_was_added_takes_its_default() -> None:
    older = replace(KERNEL.signature, knobs=tuple(knob for knob in KERNEL.signature.knobs if knob.name != "STORES"))
    stored = older.config({name: value for name, value in STORED.items() if name != "STORES"})
    config, source = choose_config(KERNEL, PROBLEM, H200.limits, stored, None)
    assert (dict(config), source) == ({**STORED, "STORES": 1}, "answer")


def test_an_answer_with_the_knobs_of_another_kernel_is_refused_unless_a_config_is_given() -> None:
    stored = Config({"TILE": 64}, "TILE=64")
    with pytest.raises(UsageError, match=r"the stored config has the knobs of another kernel: .*; give one with --con"):
        choose_config(KERNEL, PROBLEM, H200.limits, stored, None)
    assert choose_config(KERNEL, PROBLEM, H200.limits, stored, STORED.text) == (STORED, "given")


def test_a_text_without_knobs_at_their_default_is_whole_and_a_shorter_one_changes_the_usual_config() -> None:
    tiles = "BLOCK_K=64 BLOCK_M=128 BLOCK_N=128 GROUP_M=8 num_stages=3 num_warps=8"
    assert KERNEL.signature.config(chosen(tiles)[0]).text == tiles  # type: ignore[arg-type]
    assert chosen("num_stages=3", stored=False)[0] == {**DEFAULT, "num_stages": 3}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("BLOCK_M=17", r"BLOCK_M is one of 1, 2, .*, 256, not '17'; choose one"),
        ("TILE=64", r"a gemm config has the knobs BLOCK_M, .*, not 'TILE'"),
        ("fast", r"a config is JSON or NAME=VALUE pairs, not 'fast'; write 'BLOCK_M=64 num_warps=4'"),
        ("BLOCK_M=64 fast", r"a config is JSON or NAME=VALUE pairs"),
        ('{"BLOCK_M": ', r"a config is JSON or NAME=VALUE pairs, not '\{\"BLOCK_M\": '; "),
        (
            "BLOCK_M=256 BLOCK_N=256 BLOCK_K=256",
            r"the config is not feasible for gemm M=4096 .* is refused by variant_can \(",
        ),
    ],
)
def test_what_is_no_config_is_refused(given: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        chosen(given)


def test_levers_are_knobs_that_have_a_choice_in_the_direction() -> None:
    knobs = (
        Knob("TILE_M", (16, 32), "rows of a tile"),
        Knob("PAD", (0, 1)),
        Knob("SHARED", (False, True), "programs share a row"),
        Knob("num_warps", (4, 8)),
    )
    config = {"TILE_M": 32, "PAD": 0, "SHARED": False, "num_warps": 8}
    moves = (Move("warps", "raise"), Move("split", "raise"), Move("tile", "lower"), Move("pad", "raise"), Move("tile"))
    assert [lever.text for lever in levers(knobs, config, moves)] == [
        "raise SHARED (False; programs share a row)",
        "lower TILE_M (32; rows of a tile)",
        "raise PAD (0)",
    ]
