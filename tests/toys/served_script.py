"""A script with an autotuned matmul as people write it. It prints the number of timed configs, and if it is right."""

import sys

import torch
import triton
import triton.language as tl
from triton.runtime.driver import driver

TIMED = []


def count_benchmarks():
    timer = driver.active.get_benchmarker()

    def counting(call, **options):
        TIMED.append(1)
        return timer(call, **options)

    driver.active.get_benchmarker = lambda: counting


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 32}, num_warps=w)
        for m, n, w in ((16, 16, 2), (64, 64, 4), (128, 128, 8), (128, 64, 4))
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        left = tl.load(a + rows[:, None] * K + inner + k, mask=(rows[:, None] < M) & (inner + k < K), other=0.0)
        right = tl.load(
            b + (inner + k)[:, None] * N + columns, mask=((inner + k)[:, None] < K) & (columns < N), other=0.0
        )
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns, total.to(tl.float16), mask=(rows[:, None] < M) & (columns < N))


def call(a, b):
    M, K, N = *a.shape, b.shape[1]
    c = torch.empty(M, N, device="cuda", dtype=torch.float16)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    matmul[grid](a, b, c, M, N, K)
    return c


if __name__ == "__main__":
    count_benchmarks()
    torch.manual_seed(0)
    right = True
    for size in map(int, sys.argv[1:]):
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in "ab")
        right = right and torch.allclose(call(a, b).float(), a.float() @ b.float(), atol=0.5, rtol=0.02)
    print(  # noqa: T201
        f"timed {len(TIMED)} right {right} block {matmul.best_config.kwargs['BLOCK_M']}"
    )
