"""The pipeline as Beam runs it: its counters, and workers that meet another plan."""

import dataclasses

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tfrecorder import OutputError, storage
from tfrecorder.format import layout
from tfrecorder.output.staging import StagedPlan, read_plan
from tfrecorder.writing import pipeline
from tfrecorder.writing.worker import Task

pytest_plugins = ["gcs.fixtures"]


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
    writer = pipeline.WriteShards(Task(str(staged), plan.digest, **given))
    writer.setup()
    newer = dataclasses.replace(plan, fingerprint="of other rows")
    storage.publish_bytes(str(staged), layout.PLAN, newer.to_json())
    with pytest.raises(OutputError, match="planned again"):
        list(writer.process((0,)))


def test_a_worker_goes_on_where_the_same_plan_was_staged_once_more(staged):
    """As by a launch that found the images in another folder."""
    plan = read_plan(str(staged))
    given = {"threads": 1, "on_error": "reject", "progress": False}
    writer = pipeline.WriteShards(Task(str(staged), plan.digest, **given))
    writer.setup()
    moved = dataclasses.replace(plan, base=f"{plan.base}/elsewhere")
    storage.publish_bytes(str(staged), layout.PLAN, moved.to_json())
    assert [done.shard for done in writer.process((0,))] == [plan.shards[0].name]


@pytest.mark.slow
def test_the_plan_is_read_as_often_for_many_shards_as_for_few(gcs, frame):
    """Of 100,000 classes each reading takes a tenth of a second."""
    reads = {}
    for shards in (2, 26):
        out = f"gs://bkt/sets/{shards}"
        gcs.forget_requests()
        frame.tensorflow.to_tfrecord(out, num_shards=shards, num_workers=2)
        assert gcs.count(object="*/done/*.json") > shards
        reads[shards] = gcs.count("download", "*/plan.json")
    assert 0 < reads[26] == reads[2]


@pytest.mark.slow
@pytest.mark.parametrize("out", ["out", "memory://staged/out", "gs://bkt/out"])
def test_a_staged_plan_is_read_again_only_where_its_file_was_replaced(out, gcs, frame):
    frame.tensorflow.to_tfrecord(out)
    plan = read_plan(out)
    staged = StagedPlan(out, plan.digest)
    first = staged.read()
    assert first == plan
    assert staged.read() is first
    storage.publish_bytes(out, layout.PLAN, plan.to_json())  # as many bytes as before
    assert staged.read() == first
    assert staged.read() is not first
    storage.remove(out, layout.PLAN)
    with pytest.raises(OutputError, match="the staged plan is gone"):
        staged.read()


@pytest.mark.slow
def test_a_launch_never_works_by_the_plan_of_another(staged):
    """Two conversions that begin at once in a bucket, where nothing is locked."""
    plan = read_plan(str(staged))
    other = dataclasses.replace(plan, fingerprint="of other rows")
    storage.publish_bytes(str(staged), layout.PLAN, other.to_json())
    with pytest.raises(OutputError, match="by another conversion, so this one stops"):
        run(staged, plan)
    with pytest.raises(OutputError, match="by another conversion, so this one stops"):
        pipeline.Commit(Task(str(staged), plan.digest), 0.1).process([])
    assert not (staged / layout.COMMIT).exists()


@pytest.mark.slow
def test_rows_that_another_launch_staged_are_not_taken_for_its_own(staged, frame, tmp_path):
    frame.tensorflow.to_tfrecord(tmp_path / "other", seed=7)
    rows = (tmp_path / "other" / layout.PLAN_ROWS).read_bytes()
    (staged / layout.PLAN_ROWS).write_bytes(rows)
    with pytest.raises(OutputError, match="the rows of another conversion"):
        run(staged, read_plan(str(staged)))
    assert not (staged / layout.COMMIT).exists()
