"""Threads, and what the process may use."""
