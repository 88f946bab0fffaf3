"""Explanations of stored answers."""
