"""Beam's runners: their options, the launch, local workers, Dataflow."""
