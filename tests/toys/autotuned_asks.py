"""A script whose configs depend on the card, as tutorials do, and whose kernel makes descriptors on the device."""

import triton
import triton.language as tl

LIMITS = triton.runtime.driver.active.utils.get_device_properties(0)


def is_hopper():
    return triton.runtime.driver.active.get_current_target().arch == 90


def get_configs():
    return [triton.Config({"ROWS": 16, "COLUMNS": 64 if is_hopper() else 32}, num_warps=4, num_stages=2)]


@triton.autotune(configs=get_configs() if LIMITS["max_shared_mem"] > 200_000 else [], key=["M", "N"])
@triton.jit
def copied(x, out, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    read = tl.make_tensor_descriptor(x, [M, N], [N, 1], [ROWS, COLUMNS])
    write = tl.make_tensor_descriptor(out, [M, N], [N, 1], [ROWS, COLUMNS])
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    write.store([row, column], read.load([row, column]))


copied[(1, 1)](None, None, 0, 0)
