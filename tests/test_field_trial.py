"""The field trial, against loopback services: what it finds, and that its report has no names."""

from __future__ import annotations

import json
import platform
import runpy
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from dataflow.endpoint import Dataflow
from gcs.control import Gcs
from objects.control import S3
from support import CSV, SAMPLES, run, skip_without

pytest_plugins = ["gcs.fixtures", "objects.fixtures", "dataflow.fixtures"]

TRIAL = SAMPLES / "field_trial"


def trial(*arguments: Any, rows: int = 400) -> tuple[int, dict[str, Any], str]:
    """The exit code of a trial, its report, and all that it printed."""
    done = run(TRIAL / "run.py", "--rows", rows, "--report", "report.json", *arguments)
    printed = done.stdout + done.stderr
    assert Path("report.json").exists(), printed
    return done.returncode, json.loads(Path("report.json").read_text()), printed


def of_report(name: str) -> Any:
    return runpy.run_path(str(TRIAL / "report.py"))[name]


@pytest.mark.slow
def test_a_part_that_fails_is_told_without_names_and_the_others_go_on(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOGNAME", platform.system().lower())  # a user whose name is elsewhere too
    monkeypatch.setenv("AWS_PROFILE", "wildlife")
    account = "robot@acme-project.iam.gserviceaccount.com"
    asked = ["--project", "acme-project", "--gs", "gs://acme-vision/lions", "--only", "gs", "kill"]
    code, report, printed = trial(*asked, "--runner-option", f"service_account_email={account}")
    assert code == 1
    outcomes = {part: found["outcome"] for part, found in report["parts"].items()}
    assert outcomes["gs"] == "failed", "there is no such bucket"
    assert outcomes["kill"] == "ran", printed
    assert {outcomes[part] for part in ("epoch", "s3", "kill-gs", "dataflow")} == {"not run"}
    assert report["parts"]["s3"]["reason"] == "it needs --s3"
    assert "acme-vision/lions" in printed, "who runs it sees which bucket"
    text = Path("report.json").read_text().lower()
    assert "<uri> cannot be" in text, report["parts"]["gs"]
    assert report["machine"]["system"] == f"<name> {platform.machine()}"
    names = ["acme", "lions", "robot", "wildlife", tmp_path, SAMPLES.parent, Path.home()]
    assert [name for name in [*names, platform.node()] if str(name).lower() in text] == []


def test_names_are_found_wherever_they_are_and_taken_out() -> None:
    written = {
        "error": "403 of 10.0.0.7: ACME-vision, of ml@acme.org, as ml, lacks acme-vision/html",
        "at": [{"trace": "open /srv/data/lions.csv, https://x.example/y?z=1; team_ml"}, 3, None],
        "ml": "key",
    }
    names = ("acme-vision", "ml")
    assert of_report("names_in")(written, names) == ["acme-vision", "ml"]
    cleaned = of_report("without_names")(written, names)
    assert of_report("names_in")(cleaned, names) == []
    assert (
        cleaned["error"] == "403 of <address>: <name>, of <account>, as <name>, lacks <name>/html"
    )
    assert cleaned["at"] == [{"trace": "open <path>, <uri> team_<name>"}, 3, None]


def test_what_is_lost_or_changed_is_counted(dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "photos", tmp_path / "photos")
    table = pd.read_csv(CSV)
    table["image_uri"] = [str(tmp_path / uri) for uri in table["image_uri"]]
    Path(table["image_uri"][3]).write_bytes(b"another")
    table.loc[len(table)] = table.loc[0]
    found = runpy.run_path(str(TRIAL / "conversions.py"))["read"](str(dataset), table)
    counted = {figure: found[figure] for figure in ("records", "lost", "doubled", "changed")}
    assert counted == {"records": 52, "lost": 1, "doubled": 0, "changed": 1}


@pytest.mark.slow
def test_what_a_part_needs_is_said_before_anything_is_made(gcs: Gcs) -> None:
    done = run(TRIAL / "run.py", "--rows", 10, "--only", "dataflow", "--gs", "gs://mine")
    assert done.returncode == 2
    assert "--only dataflow needs --project" in done.stderr
    assert "does not start with s3://" in run(TRIAL / "run.py", "--s3", "mine").stderr


def check_parts(report: dict[str, Any], *parts: str) -> None:
    ran = {part for part, found in report["parts"].items() if found["outcome"] == "ran"}
    assert ran == {*parts, "removal"}, json.dumps(report["parts"], indent=1)
    for part in parts:
        found = report["parts"][part]
        assert found["read"]["lost"] == found["read"]["doubled"] == found["read"]["changed"] == 0
        assert found["compare"]["files_that_differ"] == 0
        assert found["compare"]["files"] > 36


@pytest.mark.engines
@pytest.mark.slow
def test_a_bucket_of_google(gcs: Gcs) -> None:
    prices = ("--thousand-writes", "0.5", "--gb-out", "0.1")
    code, report, printed = trial("--gs", "gs://bkt/mine", "--only", "gs", "kill-gs", *prices)
    assert code == 0, printed
    check_parts(report, "gs", "kill-gs")
    killed = report["parts"]["kill-gs"]
    assert 12 <= killed["kill"]["shards_done"] <= killed["resume"]["shards_kept"] < 36
    costs = {row["of"]: row for row in report["costs"]["each"]}
    assert costs["thousand_writes"]["amount"] > 0.4, "the images alone"
    assert costs["thousand_writes"]["cost"] == round(costs["thousand_writes"]["amount"] / 2, 4)
    unpriced = costs["thousand_reads"]
    assert (unpriced["option"], unpriced["cost"]) == ("--thousand-reads", None)
    assert gcs.names("gs://bkt/") == []


@pytest.mark.engines
@pytest.mark.slow
def test_a_bucket_of_s3(s3: S3) -> None:
    code, report, printed = trial("--s3", "s3://bkt/mine/", "--only", "s3", "kill-s3", rows=100)
    assert code == 0, printed
    check_parts(report, "s3", "kill-s3")
    assert s3.names("s3://bkt/") == []


@pytest.mark.engines
@pytest.mark.slow
def test_dataflow(gcs: Gcs, dataflow: Dataflow) -> None:
    options = [f"dataflow_endpoint={dataflow.url}", "no_auth=true"]
    asked = [word for one in options for word in ("--runner-option", one)]
    asked += ["--project", "loopback-project", "--gs", "gs://bkt", "--only", "dataflow"]
    code, report, printed = trial(*asked, "--core-hour", "0.05", "--gib-hour", "0.001", rows=100)
    assert code == 0, printed
    check_parts(report, "dataflow")
    job = report["parts"]["dataflow"]["job"]
    assert job["state"] == "DONE"
    assert (job["machines_at_most"], job["core_hours"], job["gib_hours"]) == (2, 2, 8)
    assert report["costs"]["sum_of_what_has_a_price"] == pytest.approx(2 * 0.05 + 8 * 0.001)
    assert "loopback" not in Path("report.json").read_text()
    assert gcs.names("gs://bkt/") == []


@pytest.mark.engines
@pytest.mark.slow
def test_an_epoch_by_two_processes() -> None:
    skip_without("torch")
    code, report, printed = trial("--only", "epoch", "--batch-size", 24, "--image-size", 32)
    assert code == 0, printed
    found = report["parts"]["epoch"]["training"]
    assert (found["processes"], found["records"], found["lost"], found["doubled"]) == (2, 288, 0, 0)
    assert 0 < found["share_of_waiting"] < 1
    assert [(rank["device"], rank["steps"]) for rank in found["ranks"]] == [("cpu, gloo", 6)] * 2
