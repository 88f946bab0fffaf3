"""The application layer: tune problems, verify and compare answers, work through jobs."""
