"""Explanations of stored answers: pure functions over stored records."""
