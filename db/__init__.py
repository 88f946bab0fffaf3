"""The store: runs, trials and answers, in SQLite or PostgreSQL."""
