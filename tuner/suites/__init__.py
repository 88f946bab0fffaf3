"""Suites of problems: shipped lists, files of shapes, and the GEMMs of a model config."""
