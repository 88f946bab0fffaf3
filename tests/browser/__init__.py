"""Tests of the service's pages in a real browser."""
