"""Adapters of other systems, one file each, which serve their lookups from the store."""
