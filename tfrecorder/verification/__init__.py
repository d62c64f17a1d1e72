"""Checking and repairing a finished directory: `verify.verify`, `repair.repair`."""
