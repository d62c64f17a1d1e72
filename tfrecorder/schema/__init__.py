"""Kinds of columns: what a stated schema makes of each column of a source."""
