"""Measuring: compiles, launches, checks and times configs in helper processes, which may crash or hang."""
