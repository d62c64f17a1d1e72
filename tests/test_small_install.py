"""Parts of the package where TensorFlow, Apache Beam or both are not installed.

The smallest environment is a real one: made here, and installed as docs/install.md says.  For the
others these packages are hidden from Python, as a real installation of either takes minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_pages import DOCS, ROOT
from environments import Environment, without
from support import CSV, public_files

#: What is in a clone of the repository and decides what is installed.
_CLONE = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "requirements")


def _pip(*arguments: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": ""},  # what lies there is not in the environment
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the base alone, as docs/install.md makes it of a clone."""
    folder = tmp_path_factory.mktemp("small")
    clone, venv = folder / "clone", folder / "venv"
    clone.mkdir()
    for name in _CLONE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, clone / name)
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tfrecorder", clone / "tfrecorder", ignore=unwanted)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    into = ("--python", venv / "bin/python", "install", "--quiet")
    _pip(*into, "--no-deps", clone)
    _pip(*into, "-r", clone / "requirements/base.txt")
    return Environment(venv / "bin/python")


@pytest.fixture
def without_beam(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return without(tmp_path_factory.mktemp("without"), "apache_beam")


@pytest.fixture
def without_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    hidden = ("tensorflow", "keras", "tensorflow_datasets")
    return without(tmp_path_factory.mktemp("without"), *hidden)


TENSORFLOW = 'run `pip install "tensorflow>=2.18"`'
BEAM = 'run `pip install "apache-beam[gcp]>=2.70,<2.78"`'


@pytest.mark.slow
def test_the_small_environment_holds_neither(small: Environment) -> None:
    small.does(
        """
import importlib.util, pathlib, sys
assert pathlib.Path(tfrecorder.__file__).is_relative_to(sys.prefix), tfrecorder.__file__
for name in ("tensorflow", "apache_beam", "keras", "torch", "google.cloud"):
    try:
        assert importlib.util.find_spec(name) is None, name
    except ModuleNotFoundError:
        pass
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
def test_the_small_environment_writes_by_stage_work_and_commit(
    small: Environment, dataset: Path
) -> None:
    counts = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}
    small.does(
        f"""
assert tfrecorder.validate({str(CSV)!r}, check_images=True).empty
tfrecorder.parts.stage({str(CSV)!r}, "out", num_shards={counts})
tfrecorder.parts.work("out", progress=False)
tfrecorder.parts.commit("out")
"""
    )
    assert public_files("out") == public_files(dataset)


@pytest.mark.slow
def test_what_is_missing_is_one_line_with_its_command(small: Environment, dataset: Path) -> None:
    assert small.refuses("convert", CSV, "out").startswith(
        f"error: apache-beam is needed for this but is not installed; {BEAM}, or call stage"
    )
    assert TENSORFLOW in small.refuses("benchmark", dataset)
    assert TENSORFLOW in small.refuses("verify", dataset, "--decode")
    assert 'run `pip install "google-cloud-storage>=' in small.refuses("info", "gs://a/b")
    small.does(
        f"""
import tfrecorder.torch

out, csv = {str(dataset)!r}, {str(CSV)!r}
tensorflow, beam = "tensorflow>=2.18", "apache-beam[gcp]>=2.70,<2.78"
for call, requirement in [
    (lambda: tfrecorder.load(out), tensorflow),
    (lambda: tfrecorder.benchmark(out), tensorflow),
    (lambda: tfrecorder.keras.TrainingPosition("run", None), tensorflow),
    (lambda: tfrecorder.verify(out, decode=True), tensorflow),
    (lambda: tfrecorder.convert(csv, "out"), beam),
    (lambda: tfrecorder.convert(csv, "out", runner="FlinkRunner"), beam),
    (lambda: tfrecorder.append(csv, out, duplicates="keep"), beam),
    (lambda: tfrecorder.info("gs://a/b"), "google-cloud-storage>=2.18"),
    (lambda: tfrecorder.torch.batches(out, "TRAIN", image_size=9), "torch"),
]:
    try:
        call()
    except tfrecorder.errors.PackageError as error:
        assert f'run `pip install "{{requirement}}"`' in str(error), error
    else:
        raise AssertionError(f"nothing lacks {{requirement}}")
"""
    )
    assert not Path("out").exists(), "it is said before anything is written"


@pytest.mark.slow
def test_load_works_without_beam(without_beam: Environment, dataset: Path) -> None:
    without_beam.does(
        f"""
train = tfrecorder.load({str(dataset)!r}, "TRAIN", batch_size=9, image_size=64)
assert sum(len(images) for images, labels in train) == 36
assert tfrecorder.verify({str(dataset)!r}, decode=True).ok
"""
    )
    assert BEAM in without_beam.refuses("convert", CSV, "out")


@pytest.mark.slow
def test_convert_works_without_tensorflow(without_tensorflow: Environment, dataset: Path) -> None:
    assert "52 records" in without_tensorflow.command("convert", CSV, "out", "--num-shards", "2")
    assert "all is well" in without_tensorflow.command("verify", "out")
    assert TENSORFLOW in without_tensorflow.refuses("benchmark", dataset)


def _requirements(part: str) -> list[str]:
    lines = (ROOT / "requirements" / f"{part}.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_the_commands_that_errors_name_are_those_of_the_requirements() -> None:
    from tfrecorder import errors

    of_files = [one for part in ("tensorflow", "beam", "gcs") for one in _requirements(part)]
    named = {requirement for requirement, _ in errors._PACKAGES.values()}
    of_extras = re.findall(r'"kafka": \["([^"]+)"\]', (ROOT / "setup.py").read_text())
    assert named <= {*of_files, *of_extras, "torch"}


def test_every_file_of_requirements_is_explained() -> None:
    page = (DOCS / "install.md").read_text()
    files = sorted(path.name for path in (ROOT / "requirements").glob("*.txt"))
    assert sorted(set(re.findall(r"requirements/(\w+\.txt)", page))) == files
