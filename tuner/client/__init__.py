"""Best configs for model code, looked up in process from a file, a service or a database."""

from tuner.client.client import Client, default_client

__all__ = ["Client", "default_client"]
