"""Datasets that grow: what is appended becomes a further generation."""
