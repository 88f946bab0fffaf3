"""The report of a retune: its summary, its texts, and its files in several formats."""
