"""Configs for model code: looked up in process, from a file, a service or a database."""
