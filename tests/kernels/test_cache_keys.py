"""Triton's keys of the shipped kernels do not depend on what was compiled before them in a process.

Triton adds the global constants of a helper to a kernel's key only if the helper was hashed before the kernel. A kernel
whose helpers use some has two keys then: that of the compile pool, and that of a worker that ran another variant.
"""

from __future__ import annotations

import os
import subprocess
import sys

AMBIGUOUS = """
from importlib import import_module
from pkgutil import walk_packages
from triton.runtime.jit import JITCallable, JITFunction
from tuner import kernels

names = [each.name for each in walk_packages(kernels.__path__, "tuner.kernels.") if not each.ispkg]
found = {id(f): f for name in names for f in vars(import_module(name)).values() if isinstance(f, JITCallable)}.values()
assert len(found) > 60

def forget(function):
    function.hash, function.used_global_vals = None, {}

for function in found:
    for each in found:
        forget(each)
    alone = function.cache_key
    forget(function)
    if isinstance(function, JITFunction) and function.cache_key != alone:
        print(function.__name__, *sorted(name for name, _ in function.used_global_vals))
"""


def test_no_key_depends_on_what_was_hashed_before() -> None:
    compiled = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-P", "-c", AMBIGUOUS], env=compiled, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
