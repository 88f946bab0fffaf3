"""Commands of the copy engine (TMA), by their names in Triton 3.6 and 3.7; 3.8 renamed them and 3.9 has no old ones."""

from __future__ import annotations

from triton.experimental.gluon.language.nvidia.hopper import tma

store_wait = tma.store_wait
if hasattr(tma, "async_load"):
    async_copy_global_to_shared, async_copy_shared_to_global = tma.async_load, tma.async_store
else:
    async_copy_global_to_shared = tma.async_copy_global_to_shared
    async_copy_shared_to_global = tma.async_copy_shared_to_global
