"""What `pip install tfrecorder-images` brings without an extra, and what is said of the others.

The environment is a real one, made here.  Where only one package is missing it is hidden from
Python, as a real installation of the others takes minutes.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.doc_pages import DOCS, ROOT
from helpers.environments import Environment, without
from support import CSV, public_files, skip_without

#: What is in a clone of the repository and decides what is installed.
_CLONE = ("setup.py", "pyproject.toml", "README.md", "LICENSE")


def _pip(*arguments: Any) -> str:
    """What pip says; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": ""},  # what lies there is not in the environment
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment without any extra, made of a clone."""
    folder = tmp_path_factory.mktemp("small")
    clone, venv = folder / "clone", folder / "venv"
    clone.mkdir()
    for name in _CLONE:
        shutil.copy(ROOT / name, clone / name)
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tfrecorder", clone / "tfrecorder", ignore=unwanted)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = ("--python", venv / "bin/python")
    assert "ERROR" not in _pip(*python, "install", "--quiet", clone)
    assert "No broken requirements found" in _pip(*python, "check")
    return Environment(venv / "bin/python")


@pytest.fixture
def without_beam(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return without(tmp_path_factory.mktemp("without"), "apache_beam")


@pytest.fixture
def without_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    hidden = ("tensorflow", "keras", "tensorflow_datasets")
    return without(tmp_path_factory.mktemp("without"), *hidden)


def command_for(extra: str) -> str:
    """The words that name an extra."""
    return f'is not installed; run `pip install "tfrecorder-images[{extra}]"`'


TENSORFLOW, BEAM = command_for("tensorflow"), command_for("beam")


@pytest.mark.slow
def test_the_small_environment_holds_no_extra(small: Environment) -> None:
    small.does(
        """
import importlib.util, pathlib, sys
assert pathlib.Path(tfrecorder.__file__).is_relative_to(sys.prefix), tfrecorder.__file__
for name in ("tensorflow", "apache_beam", "keras", "torch", "obstore", "confluent_kafka"):
    assert importlib.util.find_spec(name) is None, name
"""
    )


@pytest.mark.slow
def test_the_small_environment_reads_and_checks(small: Environment, dataset: Path) -> None:
    small.does(
        f"""
out = {str(dataset)!r}
records = tfrecorder.Records(out, "TRAIN", image_size=64)
image, label = records[7]
assert (image.shape, len(records)) == ((64, 64, 3), 36)
loop = tfrecorder.batches(out, "TRAIN", batch_size=9, image_size=64, seed=7)
assert sum(len(images) for images, labels in loop) == 36
assert tfrecorder.info(out).splits["TRAIN"].records == 36
assert tfrecorder.verify(out).ok
assert len(tfrecorder.inspect(out, "TEST")) == 8
assert len(tfrecorder.to_frame(out)) == 52
tfrecorder.preview(out, "page.html", progress=False)
from tfrecorder.torch import BatchSampler
assert len(BatchSampler(records, 9)) == 4
"""
    )
    assert "TRAIN" in small.command("info", dataset)
    assert "all is well" in small.command("verify", dataset)
    assert "coffee" in small.command("inspect", dataset)


@pytest.mark.slow
def test_the_small_environment_converts(small: Environment, dataset: Path) -> None:
    counts = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}
    shards = ",".join(f"{split}={count}" for split, count in counts.items())
    assert "52 records" in small.command("convert", CSV, "by-command", "--num-shards", shards)
    small.does(
        f"""
assert tfrecorder.validate({str(CSV)!r}, check_images=True).empty
tfrecorder.convert({str(CSV)!r}, "by-call", num_shards={counts})
tfrecorder.parts.stage({str(CSV)!r}, "by-parts", num_shards={counts})
tfrecorder.parts.work("by-parts", progress=False)
tfrecorder.parts.commit("by-parts")
"""
    )
    for name in ("by-command", "by-call", "by-parts"):
        assert public_files(name) == public_files(dataset)


@pytest.mark.slow
def test_what_is_missing_is_one_line_with_its_command(small: Environment, dataset: Path) -> None:
    line = small.refuses("convert", CSV, "out", "--runner", "DirectRunner")
    assert line == (
        f"error: apache-beam is needed for this but {BEAM}, or leave out the runner and its "
        "options."
    )
    assert TENSORFLOW in small.refuses("benchmark", dataset)
    assert TENSORFLOW in small.refuses("verify", dataset, "--decode")
    Path("images.csv").write_text("TRAIN,s3://bucket/a.jpg,cat\n")
    assert command_for("s3") in small.refuses("convert", "images.csv", "out")
    small.does(
        f"""
import tfrecorder.torch

out, csv = {str(dataset)!r}, {str(CSV)!r}
for call, extra in [
    (lambda: tfrecorder.load(out), "tensorflow"),
    (lambda: tfrecorder.benchmark(out), "tensorflow"),
    (lambda: tfrecorder.keras.TrainingPosition("run", None), "tensorflow"),
    (lambda: tfrecorder.verify(out, decode=True), "tensorflow"),
    (lambda: tfrecorder.convert(csv, "out", runner="FlinkRunner"), "beam"),
    (lambda: tfrecorder.append(csv, out, duplicates="keep", runner="DirectRunner"), "beam"),
    (lambda: tfrecorder.compact(out, "out", runner_options={{"streaming": False}}), "beam"),
    (lambda: tfrecorder.info("s3://a/b"), "s3"),
    (lambda: tfrecorder.Records("az://a/b", "TRAIN"), "az"),
    (lambda: tfrecorder.convert(csv, "s3://a/b"), "s3"),
    (lambda: tfrecorder.stream("kafka://localhost:9092/photos", "out"), "kafka"),
    (lambda: tfrecorder.torch.batches(out, "TRAIN", image_size=9), "torch"),
]:
    try:
        call()
    except tfrecorder.errors.PackageError as error:
        assert f'run `pip install "tfrecorder-images[{{extra}}]"`' in str(error), error
    else:
        raise AssertionError(f"nothing lacks {{extra}}")
"""
    )
    assert not Path("out").exists(), "it is said before anything is written"


@pytest.mark.slow
def test_each_extra_is_on_the_page(small: Environment) -> None:
    code = (
        "from importlib.metadata import metadata as of; print(of('tfrecorder-images').get_all(%r))"
    )
    extras = ast.literal_eval(small.run("-c", code % "Provides-Extra").stdout)
    page = (DOCS / "install.md").read_text()
    assert {"all", "beam", "s3"} <= {*extras}
    assert not [extra for extra in extras if f"`{extra}`" not in page]


@pytest.mark.slow
def test_load_works_without_beam(without_beam: Environment, dataset: Path) -> None:
    without_beam.does(
        f"""
train = tfrecorder.load({str(dataset)!r}, "TRAIN", batch_size=9, image_size=64)
assert sum(len(images) for images, labels in train) == 36
assert tfrecorder.verify({str(dataset)!r}, decode=True).ok
"""
    )
    assert BEAM in without_beam.refuses("convert", CSV, "out", "--runner", "DirectRunner")


@pytest.mark.slow
def test_convert_works_without_tensorflow(without_tensorflow: Environment, dataset: Path) -> None:
    assert "52 records" in without_tensorflow.command("convert", CSV, "out", "--num-shards", "2")
    assert "all is well" in without_tensorflow.command("verify", "out")
    assert TENSORFLOW in without_tensorflow.refuses("benchmark", dataset)


@pytest.mark.slow
def test_torch_trains_without_tensorflow_and_beam(tmp_path_factory: pytest.TempPathFactory) -> None:
    skip_without("torch")
    folder = tmp_path_factory.mktemp("without")
    plain = without(folder, "tensorflow", "keras", "tensorflow_datasets", "apache_beam")
    done = plain.run(ROOT / "samples/train_torch.py", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
