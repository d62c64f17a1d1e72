"""Jobs on Dataflow, and what is checked before them: they run truly, in an environment like a
worker's, which holds neither TensorFlow nor this package (see tests/services/dataflow).

The inner law: the settings of a job, its notes of failure, and how long its end is waited for.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import re
import signal
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.public_types import ConvertOptions
from support import (
    CSV,
    SAMPLES,
    content_files,
    end_by_ctrl_c,
    public_files,
    run,
    shorten_pauses,
    start,
    wait_for,
)

import tfrecorder
from services.dataflow.cases import OUT, SOURCE, settings
from services.dataflow.endpoint import Dataflow
from services.gcs.control import Gcs
from tfrecorder.errors import OptionError, OutputError, RejectedError, RunnerError
from tfrecorder.format import layout
from tfrecorder.output.status import Failure, note_failure
from tfrecorder.runners.dataflow import DataflowJob
from tfrecorder.schema import Boxes, Image, Label, Labels, Mask, Number, Schema, Split, Text
from tfrecorder.schema.keys import BOX_COLUMNS

pytest_plugins = ["services.gcs.fixtures", "services.dataflow.fixtures"]


# ---------------------------------------------------------------------------------------------
# A job.


@pytest.mark.slow
def test_a_job_makes_what_this_machine_makes(
    bucket: Gcs, dataflow: Dataflow, dataset: Path
) -> None:
    job = tfrecorder.convert(SOURCE, OUT, **settings(dataflow))
    assert isinstance(job, DataflowJob)
    assert (job.job_id, job.project, job.region) == (*dataflow.jobs, "loopback", "us-central1")
    assert job.url.startswith("https://console.cloud.google.com/dataflow/jobs/us-central1/2026-")
    assert f"tfrecorder status {OUT}" in str(job)
    assert job.url in job._repr_html_()

    ended = job.wait(timeout=300)
    assert ended.state == "DONE"
    assert bucket.files(OUT) == public_files(dataset)
    assert job.status().conversion == tfrecorder.status(OUT)
    result = pickle.loads(pickle.dumps(job)).result()
    assert (result.records, result.output_dir) == (52, OUT)
    assert result.class_names == ("brick", "cat", "coffee", "gravel")


@pytest.mark.slow
def test_workers_that_die_and_others_that_are_given_up_but_go_on(
    bucket: Gcs, dataflow: Dataflow, dataset: Path
) -> None:
    """Two of Beam's worker processes; each bundle at both at once; one of them is killed."""
    dataflow.processes = 2
    job = tfrecorder.convert(SOURCE, OUT, **settings(dataflow))
    bucket.forget_requests()
    bucket.inject("stall", operation="download", object="*.jpg", seconds=10)
    [served] = dataflow.jobs.values()

    def both_attempts_load_one_image() -> bool:
        loads = [
            count
            for operation, name, outcome, count in bucket.requests()
            if (operation, outcome) == ("download", "under way") and name.endswith(".jpg")
        ]
        return max(loads, default=0) > 1 and len(dataflow.worker_processes(served)) == 2

    wait_for(both_attempts_load_one_image, seconds=120)
    os.kill(dataflow.worker_processes(served)[0], signal.SIGKILL)
    bucket.mend()

    assert job.wait(timeout=240).state == "DONE", served.messages
    assert "Traceback" in dataflow.failed_attempts(served), "which the service tried again"
    assert bucket.files(OUT) == public_files(dataset)
    assert tfrecorder.verify(OUT).ok


@pytest.mark.slow
def test_a_job_that_overwrites_keeps_the_old_dataset_until_its_end(
    bucket: Gcs, dataflow: Dataflow, dataset: Path
) -> None:
    tfrecorder.convert(CSV, OUT, num_shards=1)
    old = bucket.files(OUT)
    options = settings(dataflow, overwrite=True)
    refused = {"copy": "*/waiting/test-*", "upload": "*/flowers/dataset_info.json"}
    for operation, files in refused.items():
        bucket.inject("status", status=403, operation=operation, object=files)
        job = tfrecorder.convert(SOURCE, OUT, **options)
        with pytest.raises(OutputError, match="denied"):
            job.wait()
        bucket.mend()
        assert bucket.files(OUT).items() >= old.items()
        assert tfrecorder.verify(OUT, progress=False).ok
        assert job.output_dir == OUT
        found = job.status().conversion
        assert (found.overwrites, found.committed, found.shards_done) == (True, False, 6)

    # What was interrupted is completed by the next job.
    job = tfrecorder.convert(SOURCE, OUT, **options)
    assert job.wait(timeout=300).state == "DONE"
    assert job.result().records == 52
    assert content_files(bucket.files(OUT)) == content_files(dataset)

    job = tfrecorder.convert(SOURCE, OUT, **options)
    assert job.wait(timeout=300).state == "DONE"
    assert job.result().records == 52
    assert re.match("tfrecorder-flowers-", dataflow.jobs[job.job_id].asked["name"])
    assert content_files(bucket.files(OUT)) == content_files(dataset)


EVERYTHING = Schema(
    split=Split(),
    image_uri=Image(),
    mask_uri=Mask(),
    objects=Boxes(unit="pixel", label="what"),
    weight=Number(default=-1.0),
    place=Number(shape=(2,)),
    caption=Text(),
    tags=Labels(separator="|"),
)
TWO_IMAGES = Schema(
    split=Split(),
    image_uri=Image(),
    other_uri=Image(),
    mask_uri=Mask(of="image_uri"),
    label=Label(),
    grade=Label(),
    words=Text(shape=(None,)),
)


def photographs_with_everything() -> pd.DataFrame:
    """Photographs with masks and boxes, a row a box, and columns of other kinds; one has no box."""
    rows: list[Any] = []
    for number, path in enumerate(sorted(SAMPLES.glob("photos/coffee/*.jpg"))):
        uri, other = f"photos/coffee/{path.name}", f"photos/cat/cat_{number + 1:02}.jpg"
        row = ["TRAIN" if number % 4 else "TEST", uri, other, f"masks/{path.stem}.png"]
        row += [None if number == 3 else number / 7, f"[{number}, 0.5]", f"cup {number}, Kaffee ä"]
        row += ["|".join(["red", "hot"][: number % 3]), "coffee", number % 3, '["a", "b"]']
        boxes = [(1, 2, 30 + number, 40, "cup"), (5.5, 6, 70, 80.25, "eye")][: number % 3]
        rows += [[*row, *box] for box in boxes or [(None,) * 5]]
    names = ["split", "image_uri", "other_uri", "mask_uri", "weight", "place", "caption"]
    names += ["tags", "label", "grade", "words", *BOX_COLUMNS, "what"]
    return pd.DataFrame(rows, columns=names)


@pytest.mark.slow
def test_a_job_with_a_schema_makes_what_this_machine_makes(
    bucket: Gcs, dataflow: Dataflow, tmp_path: Path
) -> None:
    """Segmentation and detection, several kinds of columns, and two images a row."""
    for folder in ("photos", "masks"):
        (tmp_path / folder).symlink_to(SAMPLES / folder)
    bucket.put_folder("gs://bkt/data/masks", SAMPLES / "masks")
    frame = photographs_with_everything()
    schemas = {
        "everything": (EVERYTHING, frame),
        "two": (TWO_IMAGES, frame.drop_duplicates("image_uri")),
    }
    more = {"image_size": (64, 48), "resize": "crop", "num_shards": {"TRAIN": 2, "TEST": 1}}
    jobs = {}
    for name, (schema, rows) in schemas.items():
        rows.to_csv(f"{name}.csv", index=False)
        bucket.put(f"gs://bkt/data/{name}.csv", Path(f"{name}.csv").read_bytes())
        given = {"schema": schema, **more}
        tfrecorder.convert(f"{name}.csv", name, progress=False, **given)
        jobs[name] = tfrecorder.convert(
            f"gs://bkt/data/{name}.csv", f"gs://bkt/{name}", **settings(dataflow, **given)
        )
    for name, job in jobs.items():
        assert job.wait(timeout=300).state == "DONE"
        assert bucket.files(f"gs://bkt/{name}") == public_files(name)
        assert tfrecorder.verify(f"gs://bkt/{name}").ok
        assert tfrecorder.info(name).rejects == {}


@pytest.mark.slow
def test_the_command_waits_when_told_to(bucket: Gcs, dataflow: Dataflow, dataset: Path) -> None:
    options = ["--runner", "DataflowRunner", "--project", "loopback", "--region", "us-central1"]
    options += [f"--runner-option={k}={v}" for k, v in dataflow.runner_options().items()]
    shards = "TRAIN=3,VALIDATION=2,TEST=1"
    finished = run(
        "-m", "tfrecorder", "convert", SOURCE, OUT, "--wait", "--num-shards", shards, *options
    )
    assert finished.returncode == 0, finished.stderr
    assert f"52 records in {OUT}" in finished.stdout
    assert bucket.files(OUT) == public_files(dataset)


@pytest.mark.slow
def test_the_workers_get_what_was_asked_for(bucket: Gcs, dataflow: Dataflow) -> None:
    dataflow.runs = False
    wanted = {
        "machine_type": "n2-standard-4",
        "disk_size_gb": 50,
        "max_num_workers": 20,
        "service_account_email": "writer@loopback.example",
        "subnetwork": "regions/us-central1/subnetworks/inner",
        "use_public_ips": False,
        "labels": ["team=vision"],
        "experiments": ["shuffle_mode=service"],
        "temp_location": "gs://bkt/elsewhere",
    }
    tfrecorder.convert(SOURCE, OUT, num_workers=3, **settings(dataflow, runner_options=wanted))
    [job] = dataflow.jobs.values()
    pool, environment = job.pool(), job.asked["environment"]
    assert (pool["machineType"], pool["diskSizeGb"], pool["numWorkers"]) == ("n2-standard-4", 50, 3)
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 20
    assert pool["subnetwork"].endswith("inner")
    assert pool["ipConfiguration"] in ("WORKER_IP_PRIVATE", 2)
    assert environment["serviceAccountEmail"] == "writer@loopback.example"
    assert "shuffle_mode=service" in environment["experiments"]
    assert job.asked["labels"] == {"team": "vision"}
    assert job.asked["name"].startswith("tfrecorder-flowers-")
    assert job.options()["pipelineUrl"].startswith("gs://bkt/elsewhere/tfrecorder-flowers-")


@pytest.mark.slow
def test_a_reject_that_stops_the_job_is_told_in_its_words(bucket: Gcs, dataflow: Dataflow) -> None:
    bucket.put("gs://bkt/data/photos/cat/cat_03.jpg", b"no image")
    job = tfrecorder.convert(SOURCE, OUT, max_reject_fraction=0, **settings(dataflow))
    with pytest.raises(RejectedError, match=r"1 of \d+ rows.*Fix the images"):
        job.result()
    assert job.status().state == "FAILED"
    assert layout.COMMIT not in bucket.files(OUT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noted", "messages", "told"),
    [
        ("words of a worker", [], (OutputError, "words of a worker")),
        (
            None,
            ["Traceback …\ntfrecorder.errors.OutputError: no room. [while running 'WriteShards']"],
            (RunnerError, r"FAILED: tfrecorder\.errors\.OutputError: no room\. "),
        ),
        (
            None,
            ["Traceback (most recent call last):\n  …\nMemoryError: all gone", "Workflow failed."],
            (
                RunnerError,
                r"FAILED: MemoryError: all gone\. See https://console\.cloud\.google\.com",
            ),
        ),
        (None, [], (RunnerError, "gave no reason")),
    ],
)
def test_why_a_job_failed(
    bucket: Gcs, dataflow: Dataflow, noted: str | None, messages: list[str], told: Any
) -> None:
    """From the directory, unless an earlier launch left it there; else from Dataflow."""
    dataflow.runs = False
    job = tfrecorder.convert(SOURCE, OUT, **settings(dataflow))
    launch = job.launch if noted else "an earlier one"
    note_failure(OUT, Failure("OutputError", noted or "earlier words", launch=launch))
    asked = dataflow.jobs[job.job_id]
    asked.messages, asked.state = messages, "JOB_STATE_FAILED"
    kind, words = told
    with pytest.raises(kind, match=words):
        job.wait()


@pytest.mark.slow
def test_ctrl_c_ends_the_waiting_and_not_the_job(bucket: Gcs, dataflow: Dataflow) -> None:
    dataflow.runs = False
    call = f"tfrecorder.convert({SOURCE!r}, {OUT!r}, **{settings(dataflow)!r})"
    waiting = start(f"import tfrecorder; {call}.result()")
    wait_for(lambda: dataflow.asked_for("GET"))
    words = end_by_ctrl_c(waiting)
    [job] = dataflow.jobs.values()
    assert re.search(rf"KeyboardInterrupt: .*the job keeps running: .*{job.id}", words), words
    assert job.state == "JOB_STATE_PENDING"


@pytest.mark.slow
def test_a_cancelled_job_is_continued_by_the_same_call(
    bucket: Gcs, dataflow: Dataflow, dataset: Path
) -> None:
    job = tfrecorder.convert(SOURCE, OUT, **settings(dataflow))
    bucket.forget_requests()
    bucket.inject("stall", operation="download", object="*/coffee/*", seconds=60)
    with pytest.raises(TimeoutError, match="is still running"):
        job.wait(timeout=0.1)
    wait_for(lambda: bucket.count("download", "bkt/data/photos/*"))  # its worker is at work
    job.cancel()
    assert job.status().state == "CANCELLED"
    with pytest.raises(RunnerError, match=r"was cancelled.*same conversion again"):
        job.wait()
    job.cancel()  # nothing more
    assert layout.COMMIT not in bucket.files(OUT)

    bucket.mend()
    tfrecorder.convert(SOURCE, OUT, **settings(dataflow)).result()
    assert bucket.files(OUT) == public_files(dataset)


@pytest.mark.slow
def test_a_service_that_stumbles_is_asked_again(bucket: Gcs, dataflow: Dataflow) -> None:
    dataflow.runs = False
    job = tfrecorder.convert(SOURCE, OUT, **settings(dataflow))
    dataflow.faults += [503, 429]
    assert job.status().state == "PENDING"
    dataflow.faults += [403]
    with pytest.raises(RunnerError, match="403 an injected fault"):
        job.status()
    with pytest.raises(RunnerError, match="could not be found"):
        dataclasses.replace(job, job_id="another").cancel()


@pytest.mark.slow
def test_waiting_goes_on_while_the_service_is_away(
    bucket: Gcs, dataflow: Dataflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataflow.runs = False
    job = tfrecorder.convert(SOURCE, OUT, **settings(dataflow))
    monkeypatch.setattr("tfrecorder.runners.dataflow.job.BACKOFF", 0.01)
    monkeypatch.setattr("tfrecorder.runners.dataflow.job.LAST_LOOK", 0.1)
    dataflow.faults += [503] * 40
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(job.wait, timeout=60)
        wait_for(lambda: not dataflow.faults)
        job.cancel()
        with pytest.raises(RunnerError, match="was cancelled"):
            waiting.result()

    monkeypatch.setattr("tfrecorder.runners.dataflow.job.LONGEST_AWAY", 0.3)
    dataflow.faults += [503] * 10_000
    with pytest.raises(
        RunnerError, match=r"not answer for 0 minutes.*may still be running: https:"
    ):
        job.wait()
    dataflow.faults.clear()


# ---------------------------------------------------------------------------------------------
# Before it.


@pytest.mark.slow
def test_all_faults_are_told_at_once_and_nothing_is_written(gcs: Gcs) -> None:
    more = {"job_name": "Not_A_Name"}
    with pytest.raises(OptionError) as caught:
        tfrecorder.convert(CSV, "out", runner="DataflowRunner", runner_options=more)
    words = str(caught.value)
    places = ("project: give the", "region: give the", "output_dir=", "job's own files")
    for fault in (*places, "Invalid job_name (Not_A_Name)"):
        assert fault in words
    assert words.count("\n- ") == 6
    assert "52 of 52 images looked at are on this machine" in words
    options = ("--runner", "DataflowRunner", "--runner-option", "job_name=Not_A_Name")
    shell = run("-W", "ignore", "-m", "tfrecorder", "convert", CSV, "out", *options).stderr
    assert shell.startswith("error: the DataflowRunner cannot start:\n- --project: give the Google")
    assert [line[:2] for line in shell.splitlines()[1:]] == ["- "] * 6
    assert not Path("out").exists()


@pytest.mark.slow
def test_what_beam_would_stage_is_looked_for_before_anything_is_written(bucket: Gcs) -> None:
    lost = {
        "extra_package": "nope.whl",
        "extra_packages": ["lost.tar.gz", "gs://bkt/there.whl"],
        "requirements_file": "req.txt",
        "setup_file": "./setup.py",
    }
    more = {"region": "us-central1-a", "runner_options": lost}
    with pytest.raises(OptionError) as caught:
        tfrecorder.convert(SOURCE, OUT, **{**settings(), **more})
    words = str(caught.value)
    assert words.count("there is no such file.") == 4
    for path in ("'nope.whl'", "'lost.tar.gz'", "'req.txt'", "'./setup.py'"):
        assert path in words
    assert "region='us-central1-a': it is a zone; give its region, us-central1." in words
    assert bucket.names(OUT) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_each_refusal_of_a_launch_has_its_remedy(
    bucket: Gcs, dataflow: Dataflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_pauses(monkeypatch)
    remedies = {
        400: "Correct the option that it names",
        403: "Is the Dataflow API enabled in project 'loopback'",
        404: "has Dataflow a region 'us-central1'?",
        409: "A job of that name runs already",
    }
    dataflow.runs = False
    for status, remedy in remedies.items():
        dataflow.faults[:] = [status]
        with pytest.raises(RunnerError, match=re.escape(remedy)):
            tfrecorder.convert(SOURCE, OUT, **settings(dataflow))
    dataflow.faults[:] = [429, 429]  # more jobs a minute than the quota has
    tfrecorder.convert(SOURCE, OUT, **settings(dataflow))
    assert len(dataflow.jobs) == 1


def test_what_options_lack_is_told_before_a_bucket_is_waited_for(bucket: Gcs) -> None:
    bucket.forget_requests()
    with pytest.raises(OptionError, match=r"project: give the(.*\n)*.*region: give the"):
        tfrecorder.convert(SOURCE, OUT, runner="DataflowRunner")
    assert bucket.count() == 0


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"output_dir": "gs://nowhere/x"}, "gs://nowhere does not exist.*buckets create"),
        ({"output_dir": "gs://bkt"}, "inside 'gs://bkt'"),
        ({"temp_location": "/tmp/here"}, "temp_location': '/tmp/here'}: give a folder in a bucket"),
        ({"temp_location": f"{OUT}/tmp"}, "holds the dataset and nothing else"),
        ({"staging_location": "gs://gone/x"}, "gs://gone does not exist"),
        ({"project": "another"}, "`project='loopback'` says it too; give one of them"),
        ({"num_workers": 9, "max_num_workers": 3}, r"num_workers \(9\) cannot exceed"),
    ],
)
def test_what_would_keep_a_job_from_running(bucket: Gcs, more: dict[str, Any], fault: str) -> None:
    out = more.pop("output_dir", OUT)
    with pytest.raises(OptionError, match=fault):
        tfrecorder.convert(SOURCE, out, **settings(runner_options=more))
    assert bucket.count("upload") + bucket.count("start") == 0


def test_a_store_that_workers_have_no_package_for(bucket: Gcs) -> None:
    from tfrecorder.runners.dataflow.checks import check

    uris = ["s3://pictures/a.jpg"]
    with pytest.raises(OptionError, match=r"'s3://pictures/a.jpg': .* no package that reads s3://"):
        check(uris, OUT, ConvertOptions(**settings()))
    more = {"requirements_file": "worker-requirements.txt"}
    Path("worker-requirements.txt").write_text("obstore\n")
    check(uris, OUT, ConvertOptions(**settings(runner_options=more)))


@pytest.mark.slow
def test_a_misspelt_option_is_told_before_anything_is_uploaded(
    bucket: Gcs, dataflow: Dataflow
) -> None:
    more = {"machine_typ": "n2-standard-4"}
    with pytest.raises(OptionError, match=r"machine_typ'.*did you mean machine_type\?"):
        tfrecorder.convert(SOURCE, OUT, **settings(dataflow, runner_options=more))
    assert bucket.count("upload") + bucket.count("start") == 0
    assert not dataflow.jobs


@pytest.mark.slow
def test_missing_credentials_are_a_fault(bucket: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HOME", "/nowhere")
    code = f"""
        from tfrecorder.runners.dataflow.checks import check
        from tfrecorder.options.convert import ConvertOptions
        check([], {OUT!r}, ConvertOptions(**{settings()!r}))
    """
    finished = run("-c", textwrap.dedent(code))
    assert "OptionError" in finished.stderr
    assert "gcloud auth application-default login" in finished.stderr
