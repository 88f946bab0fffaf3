"""The copy engine's commands, by the names that Triton had for them until 3.7 and has no more from 3.8 on."""

from __future__ import annotations

from triton.experimental.gluon.language.nvidia.hopper import tma

store_wait = tma.store_wait
if hasattr(tma, "async_load"):
    async_copy_global_to_shared, async_copy_shared_to_global = tma.async_load, tma.async_store
else:
    async_copy_global_to_shared = tma.async_copy_global_to_shared
    async_copy_shared_to_global = tma.async_copy_shared_to_global
