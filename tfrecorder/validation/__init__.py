"""Validation: every fault of a table at once."""
