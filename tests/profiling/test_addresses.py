"""Code that is evaluated on the host: addresses, sectors, banks and loads in flight against what is counted by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tuner.profiling.accesses import Accesses, accesses
from tuner.profiling.banks import cycles
from tuner.profiling.evaluate import EvaluateSettings, Evaluation, Program
from tuner.profiling.ptx import parse
from tuner.profiling.sectors import sectors

PTX = """
.version 8.7
.target sm_90a
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u32 kernel_param_1,
	.param .align 64 .b8 kernel_param_2[128]
)
.reqntid 64
{
	.reg .b32 	%r<9>;
	.loc	1 7 0                          // kernel.py:7:0
$L__func_begin0:
	ld.param.b64 	%rd1, [kernel_param_0];
	ld.param.b32 	%r1, [kernel_param_1];
	mov.u32 	%r2, %tid.x;
BODY
	ret;
}
	.file	1 "/home/me/kernel.py"
"""


def evaluated(body: str, *, steps: int = 60_000, program: int = 0, **arguments: int) -> Evaluation:
    """Return the evaluation of code in which %rd1 is an address, %r1 a number and %r2 the thread."""
    code = parse(PTX.replace("BODY", body))
    assert code is not None
    values = {"kernel_param_0": 1 << 40, "kernel_param_1": arguments.get("number", 0)}
    return Program(code, values, (8,), (program,), EvaluateSettings(steps=steps)).run()


def found(body: str, **arguments: int) -> Accesses:
    return accesses(evaluated(body, **arguments))


def test_a_code_has_a_name_parameters_threads_and_places() -> None:
    code = parse(PTX.replace("BODY", "	.loc	1 9 4\n	@!%p1 st.global.v2.b32 	[%rd1+8], {%r1, %r2};"))
    assert code is not None
    assert (code.name, code.threads) == ("kernel", 64)
    assert code.parameters == ("kernel_param_0", "kernel_param_1", "kernel_param_2")
    assert code.descriptors == {"kernel_param_2"}
    store = code.instructions[-2]
    assert (store.line, store.width, store.guard, store.negated) == ("kernel.py:9", 8, "%p1", True)
    assert store.operands == ("[%rd1+8]", "{%r1, %r2}")
    assert parse("no code") is None


@pytest.mark.parametrize(
    ("stride", "touched"), [(4, 4), (8, 8), (32, 32), (128, 32), (0, 1)], ids=lambda value: str(value)
)
def test_sectors_of_a_strided_load(stride: int, touched: int) -> None:
    body = f"mul.wide.s32 %rd2, %r2, {stride};\nadd.s64 %rd3, %rd1, %rd2;\nld.global.b32 %r3, [%rd3];"
    (load,) = found(body).lines
    assert (load.kind, load.space, load.width, load.requests) == ("load", "global", 4, 2)
    assert load.cost == 2 * touched
    assert load.fewest == (2 if stride == 0 else 8)


@pytest.mark.parametrize("words", [1, 2, 31, 32, 33])
def test_bank_conflicts_of_a_column(words: int) -> None:
    body = f"mul.lo.s32 %r3, %r2, {4 * words};\nmov.b32 %r4, global_smem;\nadd.s32 %r5, %r4, %r3;\n"
    (load,) = found(body + "ld.shared.b32 %r6, [%r5];").lines
    assert load.space == "shared"
    assert load.cost == 2 * {1: 1, 2: 2, 31: 1, 32: 32, 33: 1}[words]
    assert load.fewest == 2


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_sectors_and_cycles_agree_with_counting(width: int) -> None:
    dice = random.Random(width)
    row = [dice.choice([-1, dice.randrange(64) * width]) for _ in range(32)]
    rows = np.array([row])
    active = [address for address in row if address >= 0]
    touched = {address // 32 for address in active}
    assert sectors(rows, width) == (len(touched), -(-len(set(active)) * width // 32))
    taken = fewest = 0
    together = min(32, 128 // width)
    for first in range(0, 32, together):
        words = {
            (address + piece) // 4
            for address in row[first : first + together]
            if address >= 0
            for piece in range(width)
        }
        banks = [sum(word % 32 == bank for word in words) for bank in range(32)]
        taken, fewest = taken + max(banks), fewest + -(-len(words) // 32)
    assert cycles(rows, width) == (taken, fewest)


def test_masks_loops_and_the_program_decide_addresses() -> None:
    body = """
	mov.u32 %r3, %ctaid.x;
	mov.b32 %r4, 0;
$L__loop:
	mad.lo.s32 %r5, %r3, 1024, %r4;
	setp.lt.s32 %p1, %r2, 8;
	mad.wide.s32 %rd2, %r5, 4, %rd1;
	cvt.u64.u32 %rd4, %r2;
	shl.b64 %rd5, %rd4, 2;
	add.s64 %rd3, %rd2, %rd5;
	@%p1 ld.global.b32 %r6, [%rd3 + 0];
	add.s32 %r4, %r4, 64;
	setp.lt.s32 %p2, %r4, %r1;
	@%p2 bra $L__loop;
"""
    evaluation = evaluated(body, program=3, number=200)
    (site,) = evaluation.sites
    assert [int(each[0, 0] - (1 << 40)) for each in site.addresses] == [4 * (3 * 1024 + 64 * nth) for nth in range(4)]
    assert (site.addresses[0] >= 0).sum() == 8
    assert evaluation.complete
    assert accesses(evaluation).loaded_bytes == 4 * 8 * 4
    cut = evaluated(body, steps=20, program=3, number=10**6)
    assert (cut.steps, cut.complete) == (20, False)


def test_threads_that_part_meet_again() -> None:
    body = """
	setp.gt.s32 %p1, %r2, 15;
	mov.b32 %r3, 0;
	@%p1 bra $L__far;
	mov.b32 %r3, 256;
	bra.uni $L__join;
$L__far:
	mov.b32 %r3, 512;
$L__join:
	cvt.s64.s32 %rd2, %r3;
	add.s64 %rd3, %rd1, %rd2;
	st.global.b32 [%rd3], %r2;
"""
    (site,) = evaluated(body).sites
    assert site.executions == 1
    assert [int(address - (1 << 40)) for address in site.addresses[0].ravel()] == [256] * 16 + [512] * 48


def test_what_depends_on_data_is_unknown_and_its_branches_do_not_hang() -> None:
    body = """
$L__wait:
	ld.global.acquire.gpu.b32 %r3, [%rd1];
	setp.ne.b32 %p1, %r3, 1;
	@%p1 bra $L__wait;
	mad.wide.s32 %rd2, %r3, 4, %rd1;
	ld.global.b32 %r4, [%rd2];
	setp.ne.b32 %p2, %r4, 1;
	@%p2 bra $L__skip;
	st.global.b32 [%rd1+64], %r4;
$L__skip:
"""
    known, unknown, store = evaluated(body).sites
    assert (known.unknown, unknown.unknown) == (0, 1)
    assert (store.kind, store.lanes) == ("store", 64)
    assert [line.unknown for line in found(body).lines] == [2, 0]  # two warps; both loads are of one line


def test_loads_are_in_flight_until_one_is_needed() -> None:
    three = "ld.global.v4.b32 {%r3,%r4,%r5,%r6}, [%rd1];\nld.global.b32 %r7, [%rd1+64];\n"
    assert found(f"{three}add.s32 %r8, %r7, 1;\nld.global.b32 %r9, [%rd1];").bytes_in_flight == 64 * 20
    waits = "ld.global.b32 %r3, [%rd1];\nmov.b32 %r4, %r3;\nadd.s32 %r5, %r4, 1;\nld.global.b32 %r6, [%rd1];"
    assert found(waits).bytes_in_flight == 64 * 4


def test_copies_are_in_flight_until_their_group_or_barrier_is_waited_for() -> None:
    copy = "cp.async.cg.shared.global [ %r2 + 0 ], [ %rd1 + 0 ], 0x10, %r1;\ncp.async.commit_group;\n"
    body = f"{copy}{copy}cp.async.wait_group 1;\n{copy}cp.async.wait_group 0;\n{copy}"
    assert found(body, number=16).bytes_in_flight == 2 * 64 * 16
    assert found(body, number=0).loaded_bytes == 0  # none of their bytes are read
    bulk = """
	setp.eq.s32 %p1, %r2, 0;
	@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 4096;
"""
    wait = "{\n.reg .pred complete;\nwaitLoop:\nmbarrier.try_wait.parity.shared::cta.b64 complete, [%r3], %r4;\n"
    wait += "@!complete bra.uni waitLoop;\n}\n"
    other = wait.replace("[%r3]", "[%r3+8]")  # a barrier that no copy is expected at
    both = found(f"mov.b32 %r3, 64;\n{bulk}{bulk}{wait}{bulk}{other}{wait}")
    assert (both.bytes_in_flight, both.loaded_bytes) == (8192, 3 * 4096)


def test_each_role_of_the_warps_is_evaluated() -> None:
    body = """
$L__next:
	ld.shared.b8 %r3, [%r2];
$L_brx_0: .branchtargets
		$L__loads,
		$L__stores,
		$L__ends;
	brx.idx %r3, $L_brx_0;
$L__loads:
	ld.global.b32 %r4, [%rd1];
	bra.uni $L__next;
$L__stores:
	st.global.b32 [%rd1+128], %r2;
	bra.uni $L__next;
$L__ends:
"""
    evaluation = evaluated(body)
    assert [(site.kind, site.executions) for site in evaluation.sites if site.space == "global"] == [
        ("load", 1), ("store", 1),
    ]  # fmt: skip
    assert evaluation.complete


def test_predicates_are_also_numbers() -> None:
    body = "mov.pred %p1, -1;\nsetp.lt.s32 %p2, %r2, 4;\nand.pred %p3, %p1, %p2;\nnot.pred %p4, %p3;\n"
    (site,) = evaluated(f"{body}@%p4 st.global.b32 [%rd1], %r2;").sites
    assert site.lanes == 60


def test_branches_on_data_are_evaluated_both_ways_and_loops_on_data_once() -> None:
    body = """
	ld.global.b32 %r3, [%rd1];
	setp.eq.s32 %p1, %r3, 0;
	@!%p1 bra $L__rest;
	st.global.b32 [%rd1 + 4], %r3;
	ret;
$L__rest:
	ld.global.b32 %r4, [%rd1 + 8];
	@%p1 ret;
$L__loop:
	ld.global.b32 %r5, [%rd1 + 12];
	setp.eq.s32 %p2, %r5, 0;
	@%p2 bra $L__loop;
"""
    evaluation = evaluated(body)
    assert [(site.kind, site.executions) for site in evaluation.sites] == [
        ("load", 1), ("store", 1), ("load", 1), ("load", 1),
    ]  # fmt: skip
    assert (evaluation.complete, evaluation.unknown_branches, found(body).unknown_branches) == (True, 3, 3)
