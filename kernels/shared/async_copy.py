"""Asynchronous copies into shared memory by threads, by their names in Triton 3.6 and 3.7."""

from __future__ import annotations

from triton.experimental.gluon.language.nvidia.ampere import async_copy

commit_group, wait_group = async_copy.commit_group, async_copy.wait_group
if hasattr(async_copy, "async_load"):
    async_copy_global_to_shared = async_copy.async_load
else:
    async_copy_global_to_shared = async_copy.async_copy_global_to_shared
