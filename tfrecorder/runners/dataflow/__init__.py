"""Dataflow: what its workers need, what is checked before a launch, the launch, and the job."""

from tfrecorder.runners.dataflow.job import DataflowJob as DataflowJob, JobStatus as JobStatus
