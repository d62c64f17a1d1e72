"""Options that do nothing are refused; those that count, and the remedies, are as a user types."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support import CSV, invoke, photo_frame, severities

import tfrecorder
from tfrecorder.errors import OptionError

IDLE = [
    (("--resize", "crop"), "--resize crop: it has no effect without --image-size; give that too."),
    (("--resize", "pad", "--short-side", "64"), "it has no effect without --image-size;"),
    (
        ("--image-quality", "80"),
        "without --image-size or --short-side or --image-format or --apply",
    ),
    (("--image-quality", "80", "--image-format", "png"), "no effect with --image-format png;"),
    (("--shard-size", "1MiB", "--num-shards", "2"), "no effect with --num-shards 2; change one"),
]


@pytest.mark.parametrize(("given", "words"), IDLE, ids=str)
@pytest.mark.parametrize("command", ["convert", "stage"])
def test_an_option_without_effect_is_one_line_on_the_command_line(
    command: str, given: tuple[str, ...], words: str
) -> None:
    done = invoke(command, CSV, "out", *given)
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert words in done.stderr
    assert not Path("out").exists()


def test_only_a_job_elsewhere_is_waited_for() -> None:
    done = invoke("convert", CSV, "out", "--wait", "--runner", "DirectRunner")
    assert done.stderr.startswith("error: --wait: it has no effect with --runner DirectRunner;")
    assert (
        "--wait: it has no effect without --runner" in invoke("convert", CSV, "o", "--wait").stderr
    )


@pytest.mark.slow
def test_an_option_that_has_an_effect_is_taken() -> None:
    frame = photo_frame(2)
    for number, options in enumerate(
        (
            {"resize": "crop", "image_size": (16, 16)},
            {"image_quality": 80, "image_size": 16},
            {"image_quality": 80, "image_format": "jpeg"},
            {"resize": "stretch", "image_quality": 95},
        )
    ):
        assert tfrecorder.convert(frame, f"out{number}", progress=False, **options).records == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"project": "p"}, "without `runner`; give that too"),
        ({"region": "europe-west1", "runner": "directrunner"}, "with `runner='DirectRunner'`; ch"),
    ],
    ids=str,
)
def test_a_conversion_refuses_what_its_runner_makes_idle(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(OptionError, match=f"it has no effect {words}"):
        tfrecorder.convert(photo_frame(2), "out", **options)


@pytest.mark.parametrize(
    "options", [{"resize": "crop"}, {"resize": "fit"}, {"antialias": False}], ids=str
)
def test_readers_refuse_an_option_that_needs_a_size(options: dict[str, Any]) -> None:
    (name,) = options
    tfrecorder.convert(photo_frame(2), "out", progress=False)
    words = f"{name}=.*: it has no effect without `image_size`; give that too."
    with pytest.raises(OptionError, match=words):
        tfrecorder.batches("out", "TRAIN", **options)
    with pytest.raises(OptionError, match=words):
        tfrecorder.Records("out", "TRAIN", **options)
    with pytest.raises(OptionError, match=words):
        tfrecorder.load("out", **options)
    with pytest.raises(OptionError, match=r"drop_remainder=True: .* without `batch_size`"):
        tfrecorder.load("out", drop_remainder=True)


@pytest.mark.slow
def test_what_a_dataset_was_made_with_is_no_mistake_of_an_append() -> None:
    tfrecorder.convert(photo_frame(4)[:2], "out", progress=False, image_size=(16, 16), resize="pad")
    assert tfrecorder.append(photo_frame(4), "out", progress=False).records == 2
    with pytest.raises(OptionError, match="no effect without `image_size"):
        tfrecorder.convert(photo_frame(2), "other", resize="pad")


def test_append_refuses_to_retry_what_it_adds_anyway() -> None:
    tfrecorder.convert(photo_frame(2), "out", progress=False)
    options = {"duplicates": "keep", "retry_rejects": True}
    with pytest.raises(OptionError, match="no effect with `duplicates='keep'`"):
        tfrecorder.append(photo_frame(2), "out", **options)


@pytest.mark.parametrize("given", [("--check", "header"), ("--max-pixels", "100")], ids=str)
def test_validate_refuses_what_only_counts_for_images_that_it_opens(given: Any) -> None:
    done = invoke("validate", CSV, *given)
    assert (done.exit_code, "without --check-images" in done.stderr) == (2, True)
    assert invoke("validate", CSV, "--check-images", *given).exit_code in (0, 1)


# Options that only the command line has.


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"columns": {"path": "image_uri"}}, r"rename the columns, .*`frame\.rename\(columns="),
        ({"column": {"path": "image_uri"}}, "mean columns.*has it; rename the columns, "),
        ({"sep": ";"}, r"`pandas\.read_csv\(path, sep=';'\)`, and give the frame"),
        ({"encoding": "cp1252"}, r"`pandas\.read_csv\(path, encoding='cp1252'\)`"),
        ({"wait": True}, "its `result\\(\\)` waits"),
    ],
    ids=str,
)
def test_python_says_what_it_has_instead_of_an_option_of_the_shell(
    option: dict[str, Any], words: str
) -> None:
    frame = photo_frame(2)
    for call in (
        lambda: tfrecorder.convert(CSV, "out", **option),
        lambda: tfrecorder.append(CSV, "out", **option),
        lambda: tfrecorder.parts.stage(CSV, "out", **option),
        lambda: tfrecorder.validate(CSV, **option),
        lambda: frame.tensorflow.to_tfrecord("out", **option),
    ):
        with pytest.raises(OptionError, match=words):
            call()


# The findings that count.

TABLE = "split,image_uri,label,z\n" + "".join(f"TRAIN,{n}.jpg,x,1\n" for n in (1, 1, 2))
SEVERAL = {"column_left_out", "duplicate_row"}


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ((), set()),
        (("--warnings", "show"), set()),
        (("--warnings", "error"), SEVERAL),
        (("--warnings", "duplicate_row"), {"duplicate_row"}),
        (("--warnings", "duplicate_row,column_left_out"), SEVERAL),
        (("--warnings", "leakage,no_train"), set()),
        (("--warnings", "few_images"), {"few_images"}),
    ],
)
def test_warnings_may_be_errors_all_or_those_that_are_named(
    given: tuple[str, ...], errors: set[str]
) -> None:
    Path("t.csv").write_text(TABLE)
    done = invoke("validate", "t.csv", *given)
    shown = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("error: ")}
    assert (done.exit_code, shown) == (bool(errors), errors), done.output
    named = given[-1] if given else "show"
    chosen = named if named in ("show", "error") else named.split(",")
    report = tfrecorder.validate("t.csv", warnings=chosen)
    assert {*report.code[report.severity == "error"]} == errors
    assert list(report.severity) == sorted(report.severity, key=["error", "warning", "note"].index)


def test_a_conversion_stops_for_the_named_warnings_alone() -> None:
    frame = photo_frame(3).assign(z=1)
    assert frame.tensorflow.to_tfrecord("out", warnings=["leakage"], progress=False).records == 3
    with pytest.raises(tfrecorder.ValidationError, match="column_left_out"):
        frame.tensorflow.to_tfrecord("other", warnings=("leakage", "column_left_out"))
    more = photo_frame(4).assign(z=1)
    with pytest.raises(tfrecorder.ValidationError, match="column_left_out"):
        tfrecorder.append(more, "out", warnings=["column_left_out"])
    assert not Path("other").exists()


@pytest.mark.slow
def test_every_code_that_is_no_error_may_be_named() -> None:
    for code, severity in severities().items():
        done = invoke("validate", CSV, "--warnings", code)
        assert (done.exit_code == 0) == (severity != "error"), code


def test_an_unknown_finding_suggests_the_nearest() -> None:
    done = invoke("validate", CSV, "--warnings", "leakge")
    assert done.stderr == (
        "error: --warnings leakge: there is no warning 'leakge'; did you mean 'leakage'?\n"
    )
    with pytest.raises(OptionError, match=r"no warning 'null_uri'; there is .*'leakage'"):
        tfrecorder.validate(CSV, warnings=["null_uri"])
    for wrong in ("leakage", True, []):
        with pytest.raises(OptionError, match="give 'show', 'error', or a list of codes"):
            tfrecorder.validate(CSV, warnings=wrong)


# What is said.


def test_the_bare_command_prints_its_help() -> None:
    done = invoke()
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == invoke("--help").stdout


def test_a_misspelt_option_of_the_accessor_suggests_those_of_append_too() -> None:
    frame = pd.DataFrame({"image_uri": ["a.jpg"]})
    for wrong, meant in {
        "appned": "append",
        "duplicate": "duplicates",
        "num_shard": "num_shards",
    }.items():
        with pytest.raises(OptionError, match=f"no option '{wrong}'; did you mean `{meant}`"):
            frame.tensorflow.to_tfrecord("out", **{wrong: True})


ODD = ["my data", "it's", 'a "b"', "$HOME", "a(b), c", "a;b", "café", "`x`"]


@pytest.mark.parametrize("name", ODD)
def test_a_remedy_that_shows_a_command_can_be_typed(name: str) -> None:
    tfrecorder.convert(photo_frame(4), name, num_shards={"TRAIN": 1}, progress=False)
    shard = next(Path(name).glob("train-*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-9])
    said = [
        invoke("status", name).stdout,
        invoke("verify", name).stdout,
        invoke("info", name).stderr,
    ]
    for words in said:
        typed = ["tfrecorder", "repair", name]
        assert f"`{shlex.join(typed)}`" in words
    assert invoke("repair", name).exit_code == 0
    refused = invoke("convert", name, "out")
    assert f"`{shlex.join(['tfrecorder', 'info', name])}` shows it" in refused.stderr
    manifest = Path(name, "_tfrecorder/commits/00000.json")
    for harm in (lambda: manifest.write_text("{}"), manifest.unlink):
        harm()
        assert shlex.join(["tfrecorder", "repair", name]) in invoke("info", name).stderr


@pytest.mark.parametrize("name", ODD)
def test_a_call_that_a_remedy_names_is_a_command_that_can_be_typed(name: str) -> None:
    Path(name).mkdir()
    done = invoke("work", name)
    assert shlex.join(["tfrecorder", "stage", "SOURCE", os.path.abspath(name)]) in done.stderr
    Path(f"{name}.csv").write_text("image_uri,z\na.jpg,1\na.jpg,2\n")
    warned = invoke("convert", f"{name}.csv", "out")
    assert shlex.join(["tfrecorder", "validate", f"{name}.csv"]) in warned.stderr
