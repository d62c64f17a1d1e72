"""The output directory as a state machine: claimed, staged, written, committed."""
