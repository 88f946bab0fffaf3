"""Which stored answer serves a query; shared by the client, the service and the command line."""
