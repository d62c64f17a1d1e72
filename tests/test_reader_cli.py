"""The commands about reading."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from reading_cases import convert_photos

from tfrecorder.cli_reading import benchmark, info


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


def run(command: click.Command, *arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_info_shows_splits_and_classes(out: str) -> None:
    shown = run(info, out)
    assert "TRAIN            36" in shown
    assert "classes: 4: 'brick', 'cat', 'coffee', 'gravel'" in shown


def test_benchmark_shows_rates_and_waiting(out: str) -> None:
    options = ["--batch-size", "6", "--image-size", "32x48", "--seconds", "0.3"]
    shown = run(benchmark, out, *options, "--step-time", "20", "--trace")
    for words in ("images/s", "MB/s", "to the first batch", "step of 20 ms", "decode"):
        assert words in shown


def test_a_wrong_size_is_said(out: str) -> None:
    result = CliRunner().invoke(benchmark, [out, "--image-size", "big"])
    assert result.exit_code == 2
    assert "write for instance 224" in result.output


def test_options_are_documented() -> None:
    for command in (info, benchmark):
        assert command.help
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help  # type: ignore[attr-defined]


def test_info_shows_rejects(tmp_path: Path) -> None:
    from reading_cases import SAMPLES, convert_images

    good = (SAMPLES / "mixed/cat_rgb.png").read_bytes()
    images = {f"{n}.png": good for n in range(4)} | {"bad.png": good[:500]}
    out = convert_images(tmp_path / "out", images, max_reject_fraction=1.0)
    assert "rejects: 1 " in run(info, out)
    assert "rejects.csv" in run(info, out)
