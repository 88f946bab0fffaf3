"""The HTTP service: answers to the question which config to launch with."""
