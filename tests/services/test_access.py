"""Buckets as people have them: paid for by the reader, public, or for one account alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support import CSV, PHOTOS, TESTS, public_files, run

import tfrecorder
from services.dataflow.cases import OUT, SOURCE, settings
from services.dataflow.endpoint import Dataflow
from services.gcs.control import Gcs
from services.gcs.tls_proxy import TlsProxy
from tfrecorder.errors import DatasetError, OutputError, SourceError, UnreachableError

pytest_plugins = ["services.gcs.fixtures", "services.dataflow.fixtures"]

ROBOT = "robot@loopback.iam.gserviceaccount.com"
HELPER = "helper@loopback.iam.gserviceaccount.com"

#: Whose tokens the key file of the tests gives, which is not an account to act as.
OWN = "loopback"


def service_itself(gcs: Gcs, tls: TlsProxy, **more: str) -> dict[str, str]:
    """The environment of a process that takes the loopback for the whole of Google Cloud."""
    own = {key: value for key, value in os.environ.items() if key not in gcs.environment()}
    return {**own, **tls.environment(), **more}


def without_credentials(gcs: Gcs, tls: TlsProxy, home: Path) -> dict[str, str]:
    env = service_itself(gcs, tls, HOME=str(home), CLOUDSDK_CONFIG=str(home))
    del env["GOOGLE_APPLICATION_CREDENTIALS"]
    return env


# ---------------------------------------------------------------------------------------------
# Buckets whose reader pays.


def refused_for_the_bill(gcs: Gcs) -> list[str]:
    """What was asked for without a project to bill, but for a look at the bucket itself.

    google-cloud-storage takes one, for its own traces of requests.
    """
    return [what for what, _, how, _ in gcs.requests() if how == "400" and what != "bucket"]


@pytest.mark.slow
def test_a_bucket_whose_reader_pays(
    bucket: Gcs, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.rule("bkt", requester_pays=True)
    monkeypatch.setenv("GS_USER_PROJECT", "my payer&co")
    result = tfrecorder.convert(SOURCE, OUT, num_shards={"TRAIN": 3, "VALIDATION": 2, "TEST": 1})
    assert bucket.files(OUT) == public_files(dataset)
    assert tfrecorder.verify(OUT).ok
    assert len(tfrecorder.Records(OUT, "TRAIN")) == result.splits["TRAIN"].records
    assert tfrecorder.Records(OUT, "TRAIN")[0] is not None
    assert tfrecorder.info(OUT).records == 52
    overwritten = tfrecorder.convert(SOURCE, OUT, num_shards=1, overwrite=True)
    assert (overwritten.records, tfrecorder.verify(OUT).ok) == (52, True)
    assert refused_for_the_bill(bucket) == []


def test_without_a_project_to_bill_the_remedy_is_named(bucket: Gcs, tmp_path: Path) -> None:
    bucket.rule("bkt", requester_pays=True)
    rows = "".join(f"TRAIN,gs://bkt/data/photos/cat/{photo.name},cat\n" for photo in PHOTOS[:3])
    Path("rows.csv").write_text(f"split,image_uri,label\n{rows}")
    for source, out, kind in (
        (SOURCE, "out", SourceError),
        ("rows.csv", "out", UnreachableError),  # not a reject of each image
        (CSV, OUT, OutputError),
    ):
        with pytest.raises(kind, match="set GS_USER_PROJECT to the Google Cloud project to bill"):
            tfrecorder.convert(source, out)
    with pytest.raises(DatasetError, match="set GS_USER_PROJECT"):
        tfrecorder.verify(OUT)
    assert not list(tmp_path.glob("out/*.*"))


@pytest.mark.slow
def test_workers_are_given_the_project(
    bucket: Gcs, dataflow: Dataflow, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.create_bucket("beam")  # which names no project to bill
    bucket.rule("bkt", requester_pays=True)
    monkeypatch.setenv("GS_USER_PROJECT", "payer")
    places = {"temp_location": "gs://beam/tmp"}
    job = tfrecorder.convert(SOURCE, OUT, **settings(dataflow, runner_options=places))
    assert job.wait(timeout=240).state == "DONE"  # in an environment without that variable
    assert bucket.files(OUT) == public_files(dataset)
    assert refused_for_the_bill(bucket) == []


@pytest.mark.slow
def test_tensorflow_names_the_project_if_its_variable_does(bucket: Gcs, tls: TlsProxy) -> None:
    tfrecorder.convert(SOURCE, OUT, num_shards=1)
    bucket.rule("bkt", requester_pays=True)
    env = service_itself(bucket, tls, GS_USER_PROJECT="payer")
    header = {"GCS_ADDITIONAL_REQUEST_HEADER": "x-goog-user-project:payer"}
    loads = f"import tfrecorder; print(len(list(tfrecorder.load({OUT!r}, 'TRAIN'))))"
    done = run("-c", loads, env=env | header)
    assert (done.returncode, done.stdout) == (0, "36\n"), done.stderr
    without = run("-c", loads, env=env)
    assert "GCS_ADDITIONAL_REQUEST_HEADER=x-goog-user-project:payer too" in without.stderr


# ---------------------------------------------------------------------------------------------
# Public buckets.

READ = f"""
import sys, tfrecorder
print(tfrecorder.convert({SOURCE!r}, "local", progress=False).records)
print(tfrecorder.info({OUT!r}).records, tfrecorder.verify({OUT!r}).ok)
print(len(tfrecorder.Records({OUT!r}, "TRAIN")))
"""


@pytest.mark.slow
def test_a_public_bucket_is_read_without_credentials(
    bucket: Gcs, tls: TlsProxy, tmp_path: Path
) -> None:
    tfrecorder.convert(SOURCE, OUT, num_shards=1)
    bucket.rule("bkt", unsigned="read")
    env = without_credentials(bucket, tls, tmp_path)
    before = bucket.callers()
    done = run("-c", READ, env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "52\n52 True\n36\n"), done.stderr
    loads = f"import tfrecorder; print(len(list(tfrecorder.load({OUT!r}, 'TRAIN'))))"
    done = run("-c", loads, env=env)
    assert (done.returncode, done.stdout) == (0, "36\n"), done.stderr
    assert bucket.count(outcome="401") == 0
    assert {caller for caller, _ in bucket.callers().keys() - before.keys()} <= {""}


@pytest.mark.slow
def test_what_is_not_public_needs_credentials(bucket: Gcs, tls: TlsProxy, tmp_path: Path) -> None:
    bucket.rule("bkt", unsigned="none")
    env = without_credentials(bucket, tls, tmp_path)
    rows = "".join(f"TRAIN,gs://bkt/data/photos/cat/{photo.name},cat\n" for photo in PHOTOS[:3])
    (tmp_path / "rows.csv").write_text(f"split,image_uri,label\n{rows}")
    for source in (SOURCE, "rows.csv"):
        done = run("-m", "tfrecorder", "convert", source, "local", env=env, cwd=tmp_path)
        assert done.returncode == 1
        assert "gcloud auth application-default login" in done.stderr
        assert "401 Anonymous caller does not have storage.objects.get access" in done.stderr
    assert not (tmp_path / "local" / "dataset_info.json").exists()


@pytest.mark.slow
def test_nothing_is_uploaded_without_credentials(
    bucket: Gcs, tls: TlsProxy, tmp_path: Path
) -> None:
    bucket.rule("bkt", unsigned="read")
    env = without_credentials(bucket, tls, tmp_path)
    done = run("-m", "tfrecorder", "convert", CSV, OUT, env=env, cwd=tmp_path)
    assert done.returncode == 1
    assert "there are no Google Cloud credentials" in done.stderr
    assert "Whoever writes" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    puts = "import sys; sys.path.append(sys.argv[1]); from support import put; "
    puts += "put('gs://bkt/out', 'a', b'data')"
    assert "UnwritableError: a: there are no Google Cloud" in run("-c", puts, TESTS, env=env).stderr
    assert bucket.count("upload|start|delete") == 0


# ---------------------------------------------------------------------------------------------
# One account to act as.


@pytest.mark.slow
def test_a_launch_acts_as_one_account_in_all_it_asks(
    bucket: Gcs, dataflow: Dataflow, tls: TlsProxy, tmp_path: Path
) -> None:
    """Checks, plan, Beam's own uploads, the job, and what is asked of it later."""
    bucket.rule("bkt", unsigned="none", callers=[ROBOT])
    dataflow.runs = False
    options = settings(dataflow, runner_options={"impersonate_service_account": ROBOT})
    del options["runner_options"]["no_auth"]
    code = f"""
import tfrecorder
job = tfrecorder.convert({SOURCE!r}, {OUT!r}, **{options!r})
print(job.status().state)
"""
    done = run("-c", code, env=service_itself(bucket, tls))
    assert (done.returncode, done.stdout) == (0, "PENDING\n"), done.stderr
    callers = bucket.callers()
    asked = {operation: caller for caller, operation in callers if caller == ROBOT}
    assert {"list", "download", "upload"} <= asked.keys()
    others = {operation for caller, operation in callers if caller not in (ROBOT, "")}
    assert others == {"other", f"act as {ROBOT}"}, "all else is asked in its name"
    assert dataflow.callers == {ROBOT}


@pytest.mark.slow
def test_an_account_by_way_of_another(bucket: Gcs, tls: TlsProxy, tmp_path: Path) -> None:
    bucket.rule("bkt", unsigned="none", callers=[ROBOT])
    env = service_itself(bucket, tls)
    acts = ["--runner-option", f"impersonate_service_account={HELPER},{ROBOT}"]
    command = ["-m", "tfrecorder", "convert", SOURCE, OUT, "--num-shards", "1", *acts]
    done = run(*command, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert bucket.callers()[f"{HELPER},{OWN}", f"act as {ROBOT}"] >= 1
    # Without the option it is one's own account, which has no access here.
    done = run(*command[:-2], env=env, cwd=tmp_path)
    assert done.returncode == 1
    assert "does not have storage.objects.get access" in done.stderr


@pytest.mark.slow
def test_credentials_that_act_as_another_account(
    bucket: Gcs, tls: TlsProxy, tmp_path: Path
) -> None:
    """As `gcloud auth application-default login --impersonate-service-account` leaves them."""
    bucket.rule("bkt", unsigned="none", callers=[ROBOT])
    user = {"type": "authorized_user", "client_id": "1", "client_secret": "2"}
    place = f"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{ROBOT}"
    found = {
        "type": "impersonated_service_account",
        "service_account_impersonation_url": f"{place}:generateAccessToken",
        "delegates": [],
        "source_credentials": {**user, "refresh_token": "3"},
    }
    (tmp_path / "adc.json").write_text(json.dumps(found))
    env = service_itself(bucket, tls, GOOGLE_APPLICATION_CREDENTIALS=str(tmp_path / "adc.json"))
    done = run("-m", "tfrecorder", "validate", SOURCE, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert bucket.callers()[ROBOT, "download"] >= 1
