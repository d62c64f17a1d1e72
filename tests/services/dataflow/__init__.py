"""Dataflow on loopback, which runs what it is given in an environment like its workers'."""
