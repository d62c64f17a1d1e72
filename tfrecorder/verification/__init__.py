"""Checking and repairing a finished directory: `verification.verify`, `repairing.repair`."""
