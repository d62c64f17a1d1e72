"""Any runner of Beam by its name, with its options; what is wrong is said before all else."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions, WorkerOptions
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState
from helpers.clusters import free_port
from helpers.public_types import ConvertOptions
from support import CSV, error_of, invoke, public_files, run

import tfrecorder
from tfrecorder.errors import OptionError, OutputError, RunnerError


def refusal_of(**options: object) -> str:
    """The words with which a conversion is refused; nothing may be written by then."""
    message = error_of(OptionError, CSV, **options)
    assert not Path("out").exists()
    return message


# ------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("directrunner", "DirectRunner"),
        ("DataFlowRunner", "DataflowRunner"),
        ("DASKRUNNER", "DaskRunner"),
        ("portablerunner", "PortableRunner"),
        ("flinkrunner", "FlinkRunner"),
        ("sparkRunner", "SparkRunner"),
        ("PrismRunner", "PrismRunner"),
        ("apache_beam.runners.dataflow.dataflow_runner.DataflowRunner", "DataflowRunner"),
    ],
)
def test_a_runner_is_known_in_any_case_and_by_its_path(given: str, name: str) -> None:
    assert ConvertOptions(runner=given).runner == name


@pytest.mark.parametrize("name", ["Dataflow", "Dask", "Portable", "Flink", "Spark", "Prism"])
def test_beam_has_each_runner_by_its_name(name: str) -> None:
    words = refusal_of(runner=f"{name}Runner", runner_options={"nothing_known": 1})
    assert f"neither Beam nor the {name}Runner has such an option" in words


def test_a_class_by_its_dotted_path_runs(dataset: Path) -> None:
    shards = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    assert tfrecorder.convert(CSV, "out", num_shards=shards, runner=runner).records == 52
    assert public_files("out") == public_files(dataset)


@pytest.mark.parametrize(
    ("runner", "words"),
    [
        ("DaskRuner", "runner='DaskRuner': there is no such runner; did you mean DaskRunner?"),
        ("Elsewhere", "there are DirectRunner, DataflowRunner, DaskRunner"),
        ("no.such.Runner", "runner='no.such.Runner': it cannot be loaded (No module named 'no')"),
        ("json.Runner", "runner='json.Runner': it cannot be loaded"),
        ("json.JSONEncoder", "runner='json.JSONEncoder': it is not a runner of Beam"),
    ],
)
def test_a_runner_that_is_none_is_refused(runner: str, words: str) -> None:
    assert words in refusal_of(runner=runner)


# ---------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dask_npartition": 3}, "runner_options={'dask_npartition': 3}: neither Beam nor the "),
        ({"dask_npartition": 3}, "has such an option; did you mean dask_npartitions?"),
        (
            {"dask_npartitions": "many"},
            "runner_options={'dask_npartitions': 'many'}: invalid int value: 'many'",
        ),
        ({"dask_npartitions": True}, "expected one argument"),
        ({"dask_npartitions": 1, "dask_partition_size": 2}, "not allowed with argument"),
        ({"no_auth": "perhaps"}, "ignored explicit argument 'perhaps'"),
        ({"transform_name_mapping": "a"}, "runner_options={'transform_name_mapping': 'a'}: "),
        ({"runner": "DirectRunner"}, "give it by its own option"),
        ({"streaming": True}, "a conversion is not a streaming pipeline"),
        ({"update": True}, "it replaces a running streaming job"),
        ({"save_main_session": True}, "which may hold a whole frame"),
        ({"no_wait_until_finish": True}, "ends with its launcher"),
    ],
    ids=str,
)
def test_an_option_that_is_wrong_is_named_with_its_value(given: dict, words: str) -> None:
    assert words in refusal_of(runner="DaskRunner", runner_options=given)


def test_what_beam_finds_missing_is_told_too() -> None:
    options = {"job_endpoint": "embed", "environment_type": "PROCESS"}
    message = refusal_of(runner="PortableRunner", runner_options=options)
    assert "Option process_command is required for environment type PROCESS" in message


def test_a_portable_runner_needs_to_know_its_job_service() -> None:
    assert "`runner_options={'job_endpoint': 'localhost:8099'}`" in refusal_of(
        runner="PortableRunner"
    )


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = {"dask_npartition": 3, "streaming": True, "direct_num_workers": "x"}
    said, *lines = refusal_of(runner="DaskRunner", runner_options=wrong).splitlines()
    assert said == "`runner_options` cannot be used:"
    for (name, value), line in zip(wrong.items(), lines, strict=True):
        assert line.startswith(f"- runner_options={{{name!r}: {value!r}}}: ")
    given = [f"--runner-option={name}={value}" for name, value in wrong.items()]
    said, *lines = invoke("convert", CSV, "out", "--runner=DaskRunner", *given).stderr.splitlines()
    assert said == "error: --runner-option cannot be used:"
    for (name, value), line in zip(wrong.items(), lines, strict=True):
        assert line.startswith(f"- --runner-option {name}={value}: ")


@pytest.mark.parametrize("name", ["direct_num_workers", "direct_running_mode", "num_workers"])
def test_local_processes_are_an_option_of_their_own(name: str) -> None:
    value = "multi_processing" if name == "direct_running_mode" else 2
    assert "set by the conversion's own number" in refusal_of(runner_options={name: value})


#: What a job's options do here too: who we act as, and what Beam logs or counts.
ALSO_HERE = re.compile(
    "impersonate_|.*log_level|enable_.*gcs|enable_bucket|gcs_|no_gcsio|max_cache"
)


def test_every_option_of_a_job_on_dataflow_is_refused_here() -> None:
    """By Beam's own lists of them, whatever else it says of some."""
    parser = argparse.ArgumentParser(add_help=False)
    GoogleCloudOptions._add_argparse_args(parser)
    WorkerOptions._add_argparse_args(parser)
    names = [text[2:] for action in parser._actions for text in action.option_strings]
    idle = [name for name in names if not ALSO_HERE.match(name)]
    assert len(idle) > 40
    for name in idle:
        for runner in ({}, {"runner": "DirectRunner"}):
            message = refusal_of(runner_options={name.replace("_", "-"): "1"}, **runner)
            assert name in message, name
            assert re.search("no effect without|leave it out|number of workers", message), message


@pytest.mark.parametrize(
    "given",
    [
        {"num_workers": 3, "runner_options": {"num_workers": 5}},
        {"region": "a", "runner_options": {"region": "b"}},
        {"runner_options": {"machine_type": "n1", "worker_machine_type": "n2"}},
        {"runner_options": {"--worker-machine-type": "n1", "machine_type": "n1"}},
        {"runner_options": {"use_public_ips": True, "no_use_public_ips": True}},
        {"runner_options": {"label": "a=b", "label ": "a=c"}},
    ],
    ids=str,
)
def test_one_value_is_given_in_one_way(given: dict[str, Any]) -> None:
    message = refusal_of(runner="DataflowRunner", **given)
    assert re.search(
        r"says it too; give one of them|is given more than once|such an option", message
    )


def test_a_list_may_be_given_under_both_of_its_names() -> None:
    given = {"dataflow_service_option": "a", "dataflow_service_options": ["b"]}
    message = refusal_of(runner="DataflowRunner", runner_options=given)
    assert "says it too" not in message  # the place of the job is missing


def test_an_empty_value_is_none() -> None:
    message = refusal_of(runner="DataflowRunner", runner_options={"job_name": ""})
    assert "job_name is empty: give a value, or leave it out" in message


def test_a_number_of_workers_that_a_cluster_would_not_heed_is_refused() -> None:
    message = refusal_of(runner="PortableRunner", num_workers=2)
    assert message.startswith("num_workers=2: it has no effect with the PortableRunner")


def test_an_option_reaches_the_engine() -> None:
    options = {"profile-cpu": True, "profile_location": "profiles"}
    tfrecorder.convert(CSV, "out", runner_options=options)
    assert list(Path("profiles").rglob("*"))


@pytest.mark.parametrize(
    ("runner", "name", "address"),
    [
        ("DaskRunner", "dask_client_address", "tcp://127.0.0.1:{}"),
        ("PortableRunner", "job_endpoint", "localhost:{}"),
    ],
)
def test_a_server_that_does_not_run_is_told_at_once(runner: str, name: str, address: str) -> None:
    address = address.format(free_port())
    message = refusal_of(runner=runner, runner_options={name: address})
    assert f"- runner_options={{{name!r}: {address!r}}}: nothing answers there" in message


@pytest.mark.slow
def test_on_the_command_line_it_is_one_line() -> None:
    arguments = ["--runner", "DaskRunner", "--runner-option", "dask_npartition=3"]
    ended = run("-m", "tfrecorder", "convert", CSV, "out", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: --runner-option dask_npartition=3: ")
    assert not Path("out").exists()


# -------------------------------------------------------------------------- runners of one's own


class IdleRunner(PipelineRunner):
    """Says that it is done, and has done nothing."""

    def run_pipeline(self, pipeline: object, options: object) -> PipelineResult:
        return _Ended(PipelineState.DONE)


class FailingRunner(PipelineRunner):
    """Fails for a reason of its own, after a worker of an earlier launch has left a note."""

    def run_pipeline(self, pipeline: object, options: object) -> PipelineResult:
        failure = {"error": "OutputError", "message": "of an earlier launch", "launch": "earlier"}
        Path("out/_tfrecorder/failure.json").write_text(json.dumps(failure))
        raise ConnectionError("the cluster is gone\n  at line 1\n  at line 2\nand stays away")


class QuotingRunner(PipelineRunner):
    """Fails with the text of a worker's traceback, as Beam brings it from another process."""

    text = ""

    def run_pipeline(self, pipeline: object, options: object) -> PipelineResult:
        raise RuntimeError(self.text)


class _Ended(PipelineResult):
    def wait_until_finish(self, duration: int | None = None) -> str:
        return self.state


@pytest.mark.slow
def test_an_end_without_the_commit_is_an_error(frame: pd.DataFrame) -> None:
    message = error_of(RunnerError, frame, runner=f"{__name__}.IdleRunner")
    assert "IdleRunner ended without the commit" in message
    tfrecorder.convert(frame, "out")
    message = error_of(RunnerError, frame, runner=f"{__name__}.IdleRunner", overwrite=True)
    assert "IdleRunner ended without the commit" in message


@pytest.mark.slow
def test_a_runner_that_fails_is_told_in_a_line_and_old_notes_are_not_read(frame) -> None:
    message = error_of(RunnerError, frame, runner=f"{__name__}.FailingRunner")
    assert "failed: ConnectionError … the cluster is gone … and stays away. " in message
    assert "run the same conversion again to continue" in message
    assert tfrecorder.convert(frame, "out").records == len(frame)


QUOTED = "Traceback (most recent call last):\ntfrecorder.errors.OutputError: the disk is full."


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (f"{QUOTED} [while running 'WriteShards']", OutputError, "the disk is full."),
        (
            f"{QUOTED}\n\nDuring handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\nKeyError: 'x' [while running 'WriteShards']",
            RunnerError,
            "KeyError: 'x'",
        ),
    ],
    ids=["ours", "another that came of it"],
)
def test_an_error_of_ours_is_read_from_a_traceback_that_ends_with_it(
    frame: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    kind: type[Exception],
    words: str,
) -> None:
    monkeypatch.setattr(QuotingRunner, "text", text)
    message = error_of(kind, frame, runner=f"{__name__}.QuotingRunner")
    assert message == words if kind is OutputError else words in message
