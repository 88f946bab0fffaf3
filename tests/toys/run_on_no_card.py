"""A script of a user with an autotuned kernel, but for the first lines: they stand for a card and count launches."""

import multiprocessing
import sys

import torch
import triton
import triton.language as tl
from helpers import H200
from triton.runtime.jit import JITFunction

import tuner.measure.device
from tuner.records import Environment

tuner.measure.device.count = lambda: 1
tuner.measure.device.describe = lambda index: H200
tuner.measure.device.environment = lambda index=0: Environment("3.7.1", "12.8", "2.13.0", "580.1")


class Noted(JITFunction):
    def run(self, *args, grid, warmup, **kwargs):
        sys.stdout.write(f"{args[2]} {kwargs['BLOCK']}\n")
        sys.stdout.flush()


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (64, 128)], key=["n"])
@Noted
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def call(n):
    double[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](torch.ones(n), torch.empty(n), n)


if __name__ == "__main__":
    for n in map(int, sys.argv[1:]):
        call(n)
    child = multiprocessing.get_context("fork").Process(target=call, args=(300,))
    child.start()
    child.join()
    sys.exit(child.exitcode + 5)
