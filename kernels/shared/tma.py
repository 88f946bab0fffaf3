"""Commands of the copy engine (TMA) and views of shared memory, by their names in Triton 3.6 and 3.7.

3.8 renamed the commands, and 3.9 has no old names.
"""

from __future__ import annotations

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

store_wait = tma.store_wait
if hasattr(tma, "async_load"):
    async_copy_global_to_shared, async_copy_shared_to_global = tma.async_load, tma.async_store
else:
    async_copy_global_to_shared = tma.async_copy_global_to_shared
    async_copy_shared_to_global = tma.async_copy_shared_to_global

_Memory = gl.shared_memory_descriptor
viewed = _Memory.reinterpret if hasattr(_Memory, "reinterpret") else _Memory._reinterpret
"""Function of a buffer, a dtype, a shape and a layout: the same shared memory, seen so."""
