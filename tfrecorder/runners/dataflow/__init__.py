"""Dataflow: what its workers need, what is checked before a launch, the launch, and the job."""
