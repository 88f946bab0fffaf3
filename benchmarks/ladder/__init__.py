"""The steps of docs/lesson.md, one op a file; `python benchmarks/lesson.py` checks and times them."""
