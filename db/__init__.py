"""What was measured and what was answered, kept in SQLite or PostgreSQL."""
