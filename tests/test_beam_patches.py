"""A Beam whose inner names differ from those we know: conversions run, as Beam alone runs them."""

from __future__ import annotations

import sys
import threading
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


@pytest.mark.parametrize("name", ["is_in_ipython", "alter_label_if_ipython", "is_in_notebook"])
def test_beam_may_look_for_notebooks_in_another_way(
    name: str, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import apache_beam.pipeline

    changed = without(apache_beam.pipeline, name)
    monkeypatch.setitem(sys.modules, "apache_beam.pipeline", changed)
    assert converted() == public_files(dataset)


@pytest.mark.parametrize("name", ["ControlConnection", "BeamFnControlServicer"])
def test_beam_may_talk_to_workers_in_another_way(
    name: str, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apache_beam.runners.portability import fn_api_runner
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    monkeypatch.setattr(fn_api_runner, "worker_handlers", without(worker_handlers, name))
    assert converted() == public_files(dataset)


@pytest.mark.parametrize("name", ["UNSTARTED_STATE", "_DONE_MARKER"])
def test_beam_may_end_workers_in_another_way(
    name: str, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apache_beam.runners.portability import fn_api_runner
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    servicer = {k: v for k, v in vars(worker_handlers.BeamFnControlServicer).items() if k != name}
    changed = without(worker_handlers)
    changed.__dict__["BeamFnControlServicer"] = types.SimpleNamespace(**servicer)
    monkeypatch.setattr(fn_api_runner, "worker_handlers", changed)
    assert converted() == public_files(dataset)


def test_a_sampler_of_another_form_is_left_alone() -> None:
    ended = threading.Event()
    inside = {"__module__": "apache_beam.x", "finished": False, "run": lambda self: ended.wait(9)}
    thread = threading.Thread(target=type("Sampler", (), inside)().run, daemon=True)
    thread.start()
    beam_patches.stop_samplers()
    ended.set()
    thread.join()


def test_options_that_cannot_be_checked_are_handed_to_beam(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apache_beam.options.pipeline_options import PipelineOptions

    every = PipelineOptions.get_all_options

    def handing_out_no_parser(self: Any, **how: Any) -> dict[str, Any]:
        if "add_extra_args_fn" in how:
            raise TypeError("unexpected keyword argument")
        return every(self, **how)

    monkeypatch.setattr(PipelineOptions, "get_all_options", handing_out_no_parser)
    options = {"direct_test_wait_for_jvm": True, "labels": ["a=1", "b=2"], "region": "here"}
    flags = ["--direct_test_wait_for_jvm", "--labels=a=1", "--labels=b=2", "--region=here"]
    assert beam_flags(tfrecorder.ConvertOptions(runner_options=options)) == flags
    assert converted() == public_files(dataset)


def test_help_is_not_an_option_of_a_runner() -> None:
    with pytest.raises(tfrecorder.OptionError, match="has such an option"):
        beam_flags(tfrecorder.ConvertOptions(runner_options={"help": True}))
