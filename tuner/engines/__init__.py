"""Doors of other systems, a file for each: what they look up is served from the store."""
