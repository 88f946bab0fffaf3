"""What was measured and what was answered, kept in SQLite, or in PostgreSQL by URL."""
