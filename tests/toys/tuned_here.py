"""A module with a function under our `autotune`, computed by torch: scales x into out and counts its launches."""

from types import SimpleNamespace

import triton
from triton.runtime.jit import JITFunction

from tuner.triton import autotune


class OnTorch(JITFunction):
    """A jit function that torch computes."""

    def run(self, *args, grid, warmup, num_warps, num_stages, num_ctas=1, **kwargs):
        given = dict(zip(self.arg_names, args, strict=False)) | kwargs
        if given["FAULT"] == "raises":
            raise ZeroDivisionError("a bug in the kernel")
        self.fn(**given)
        return self._code()

    def warmup(self, *args, grid, **kwargs):
        return self._code()

    def _code(self):
        return SimpleNamespace(n_regs=32, n_spills=0, metadata=SimpleNamespace(shared=1024))


@autotune([triton.Config({"BLOCK": 64, "FAULT": fault}) for fault in ("raises", "none", "same")], key=["n"])
@OnTorch
def scale(x, out, count, n, BLOCK, FAULT):
    out.copy_(2 * x)
    count += 1
