"""Rules behind the default of gemm: what each yields is feasible, so that none is passed over in silence."""

from __future__ import annotations

import random
from itertools import product

import pytest
from compiled_gemm import problem
from helpers import A100, B200, H200

from tuner.kernels.gemm import KERNEL
from tuner.kernels.gemm.default import NARROW, SETTINGS, WIDE
from tuner.kernels.spec import Problem

LAYOUTS = ("nn", "nt", "tn", "tt")


def problems(seed: int) -> list[Problem]:
    """Return drawn problems, and small ones of all layouts at the edges of the rules."""
    dice = random.Random(seed)
    assert KERNEL.draw is not None
    drawn = [KERNEL.signature.problem(KERNEL.draw(dice)) for _ in range(60)]
    sizes = [
        (dice.choice((1, 2, 3, 4, 5, 16, 17, 40, 63, 64, 300)), dice.randint(17, 9000), dice.randint(1, 5000))
        for _ in range(60)
    ]
    tall = [(dice.randint(8192, 40_000), dice.randint(17, 63), dice.randint(1, 320)) for _ in range(20)]
    edges = list(product((1, 2, 4), (64, 2048, 70_000), (16, 32, 33, 64, 65, 72, 128, 312, 1000, 1023)))
    flat = [
        problem(M=M, N=N, K=K, layout=layout)
        for M, N, K in (*sizes, *edges)
        for layout in LAYOUTS
    ]  # fmt: skip
    tf32 = [problem(M=M, N=N, K=K, layout="nn", dtype="fp32", precision="tf32") for M, N, K in sizes]
    upright = [problem(M=M, N=N, K=K, layout=layout) for M, N, K in tall for layout in LAYOUTS]
    return [*drawn, *flat, *tf32, *upright]


RULES = {"of few rows": NARROW, "of others": WIDE}


@pytest.mark.parametrize(("kind", "nth"), [(kind, nth) for kind, rules in RULES.items() for nth in range(len(rules))])
def test_the_first_config_of_a_rule_is_feasible(kind: str, nth: int) -> None:
    rule, asked = RULES[kind][nth], 0
    for each in problems(7):
        if (min(each["M"], each["N"]) < SETTINGS.fewest_rows) != (kind == "of few rows"):
            continue
        for card in (A100, H200, B200):
            first = next(rule(each, card.limits), None)
            asked += first is not None
            assert first is None or KERNEL.valid(each, first, card.limits), (card.id, each.text, first)
    assert asked
