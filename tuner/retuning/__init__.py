"""Nightly re-tuning: stored answers are measured again, and what changed is named, repaired and reported."""
