"""A Beam whose inner names differ from those we know: conversions run, as Beam alone runs them."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from support import CSV, public_files

import tfrecorder
from tfrecorder.runners import beam_patches
from tfrecorder.runners.beam_options import beam_flags

SHARDS = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}


def without(module: types.ModuleType, *names: str) -> types.ModuleType:
    """A copy of a module without some names, for those who look into it from outside."""
    copy = types.ModuleType(module.__name__)
    copy.__dict__.update({k: v for k, v in vars(module).items() if k not in names})
    return copy


def converted(**options: Any) -> dict[str, bytes]:
    assert tfrecorder.convert(CSV, "out", num_shards=SHARDS, **options).records == 52
    return public_files("out")


@pytest.mark.parametrize("module", ["utils.interactive_utils", "pipeline"])
def test_beam_may_look_for_notebooks_in_another_way(
    module: str, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"apache_beam.{module}"
    changed = without(importlib.import_module(name), "is_in_ipython")
    monkeypatch.setitem(sys.modules, name, changed)
    assert converted() == public_files(dataset)


def test_beam_may_keep_credentials_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "apache_beam.internal.gcp.auth"
    changed = without(importlib.import_module(name), "_Credentials")
    monkeypatch.setitem(sys.modules, name, changed)
    with beam_patches.credentials_looked_for():
        pass


@pytest.mark.parametrize("name", ["get_current_tracker", "finished"])
def test_beam_may_track_its_steps_in_another_way(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("apache_beam.runners.worker.statesampler")
    changed = without(module, name)
    if name == "finished":
        vars(changed)["get_current_tracker"] = object  # without any attribute
    monkeypatch.setitem(sys.modules, module.__name__, changed)
    beam_patches.stop_sampler()


def test_help_is_not_an_option_of_a_runner() -> None:
    with pytest.raises(tfrecorder.OptionError, match="has such an option"):
        beam_flags(tfrecorder.ConvertOptions(runner_options={"help": True}))
