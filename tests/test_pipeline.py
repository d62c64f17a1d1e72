"""The pipeline as Beam runs it: its counters, and workers that meet another plan."""

import dataclasses

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.errors import OutputError
from tfrecorder.plan.staging import read_plan
from tfrecorder.writing import pipeline


@pytest.fixture
def staged(frame, tmp_path):
    """A finished directory, a missing image among its rows, without its commit."""
    out = tmp_path / "out"
    frame.loc[0, "image_uri"] = "nowhere.jpg"
    frame.tensorflow.to_tfrecord(out)
    (out / layout.COMMIT).unlink()
    return out


def run(out, plan, workers=0):
    pipe = beam.Pipeline(FnApiRunner())
    given = {"threads": 1, "on_error": "reject", "max_reject_fraction": 0.1, "progress": False}
    pipeline.build(pipe, plan, str(out), **given, workers=workers)
    return pipe.run()


def test_counters_tell_rows_records_rejects_and_bytes(staged):
    plan = read_plan(str(staged))
    counters = run(staged, plan).metrics().query()["counters"]
    found = {counter.key.metric.name: counter.committed for counter in counters}
    shards = sum(path.stat().st_size for path in staged.glob("*.tfrecord"))
    assert found["rows"] == plan.rows == found["records"] + found["rejects"]
    assert found["rejects"] == 1
    assert found["bytes"] == shards > found["input_bytes"] > 0


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 1000])
def test_each_shard_goes_to_one_of_however_many_workers(staged, workers):
    plan = read_plan(str(staged))
    counters = run(staged, plan, workers).metrics().query()["counters"]
    found = {counter.key.metric.name: counter.committed for counter in counters}
    assert found["rows"] == plan.rows
    assert (staged / layout.COMMIT).exists()


def test_a_worker_of_an_older_plan_stops(staged):
    plan = read_plan(str(staged))
    given = {"threads": 1, "on_error": "reject", "progress": False}
    writer = pipeline.WriteShards(str(staged), plan.digest, **given)
    writer.setup()
    newer = dataclasses.replace(plan, fingerprint="of other rows")
    storage.publish_bytes(str(staged), layout.PLAN, newer.to_json())
    with pytest.raises(OutputError, match="planned anew"):
        list(writer.process((0,)))


def test_a_launch_never_works_by_the_plan_of_another(staged):
    """Two conversions that begin at once in a bucket, where nothing is locked."""
    plan = read_plan(str(staged))
    other = dataclasses.replace(plan, fingerprint="of other rows")
    storage.publish_bytes(str(staged), layout.PLAN, other.to_json())
    with pytest.raises(OutputError, match="by another conversion; this one stops"):
        run(staged, plan)
    with pytest.raises(OutputError, match="by another conversion; this one stops"):
        pipeline.Commit(str(staged), plan.digest, 0.1).process([])
    assert not (staged / layout.COMMIT).exists()


def test_rows_that_another_launch_staged_are_not_taken_for_its_own(staged, frame, tmp_path):
    frame.tensorflow.to_tfrecord(tmp_path / "other", seed=7)
    rows = (tmp_path / "other" / layout.PLAN_ROWS).read_bytes()
    (staged / layout.PLAN_ROWS).write_bytes(rows)
    with pytest.raises(OutputError, match="the rows of another conversion"):
        run(staged, read_plan(str(staged)))
    assert not (staged / layout.COMMIT).exists()
