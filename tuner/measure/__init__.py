"""How a config becomes a `Measurement`: recorded, or compiled and run by processes that may die."""
