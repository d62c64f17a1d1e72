"""A Beam whose inner names differ from those we know: conversions run, as Beam alone runs them.

The inner law: what we reach of Beam that is not public may be gone, and options become its flags.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
from helpers.public_types import ConvertOptions
from support import CSV, public_files, run

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


@pytest.mark.parametrize("defaults", [(200,), (200, None), None])
def test_beams_sampler_is_left_as_it_was(defaults: tuple | None) -> None:
    """Also where its arguments are others than those that we know."""
    from apache_beam.runners.worker.statesampler import StateSampler

    begin: Any = StateSampler.__init__
    before = begin.__defaults__
    begin.__defaults__ = defaults
    try:
        with contextlib.suppress(KeyError), beam_patches.sampled_often():
            assert (begin.__defaults__ == defaults) == (defaults != before)
            raise KeyError
        assert begin.__defaults__ == defaults
    finally:
        begin.__defaults__ = before
    assert before == beam_patches.BEAM_SAMPLES  # else this Beam needs another patch


@pytest.mark.parametrize(
    ("found", "during", "meanwhile", "left"),
    [
        ((700, 10, 10), (20_000, 10, 10), None, (700, 10, 10)),
        # Another thread sets it during the import.
        ((700, 10, 10), (20_000, 10, 10), (900, 5, 5), (900, 5, 5)),
        # As the command line and a second thread find it.
        ((20_000, 9, 9), (20_000, 9, 9), None, (20_000, 9, 9)),
        ((0, 10, 10), (0, 10, 10), None, (0, 10, 10)),  # never
    ],
)
def test_beams_import_leaves_the_garbage_collector_as_the_user_set_it(
    found: tuple, during: tuple, meanwhile: tuple | None, left: tuple, monkeypatch: Any
) -> None:
    seen = []

    def load(name: str) -> None:
        seen.append(gc.get_threshold())
        if meanwhile:
            gc.set_threshold(*meanwhile)
        raise ImportError(name)

    monkeypatch.setattr(beam_patches, "importlib", types.SimpleNamespace(import_module=load))
    before = gc.get_threshold()
    gc.set_threshold(*found)
    try:
        with pytest.raises(ImportError):
            beam_patches.import_beam()
        assert gc.get_threshold() == left
    finally:
        gc.set_threshold(*before)
    assert seen == [during]


@pytest.mark.slow
def test_two_threads_may_be_the_first_to_convert() -> None:
    code = "import threading, tfrecorder; " + f"convert, csv = tfrecorder.convert, {str(CSV)!r}; "
    code += "two = [threading.Thread(target=convert, args=(csv, f'out{n}')) for n in (1, 2)]; "
    code += "[one.start() for one in two]; [one.join() for one in two]"
    assert "Error" not in run("-c", code).stderr
    assert public_files("out1") == public_files("out2") != {}


def test_help_is_not_an_option_of_a_runner() -> None:
    with pytest.raises(tfrecorder.errors.OptionError, match="has such an option"):
        beam_flags(ConvertOptions(runner_options={"help": True}))


def test_a_thread_that_beam_forgets_on_ctrl_c_is_ended() -> None:
    """Where the interrupt falls between its start and the note of it, the process would hang."""
    from apache_beam.runners.worker import statesampler
    from apache_beam.utils.counters import CounterFactory

    before = threading.enumerate()
    sampler = statesampler.StateSampler("step", CounterFactory())
    statesampler.set_current_tracker(sampler)  # as its own `start` does, before the interrupt
    statesampler.statesampler_impl.StateSampler.start(sampler)
    (thread,) = set(threading.enumerate()) - set(before)
    sampler.stop_if_still_running()
    assert not sampler.finished  # forgotten
    beam_patches.stop_sampler()
    assert sampler.finished
    thread.join(60)
    assert not thread.is_alive()
    beam_patches.stop_sampler()


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({"--machine-type": "n1-standard-4"}, ["--machine_type=n1-standard-4"]),
        ({"max_num_workers": 5}, ["--max_num_workers=5"]),
        ({"no_use_public_ips": True}, ["--no_use_public_ips"]),
        ({"use_public_ips": False}, ["--no_use_public_ips"]),
        ({"no_auth": "true"}, ["--no_auth"]),
        ({"no_auth": False, "subnetwork": None}, []),
        ({"labels": ["a=1", "b=2"]}, ["--labels=a=1", "--labels=b=2"]),
        ({"experiments": "use_runner_v2"}, ["--experiments=use_runner_v2"]),
        ({"transform_name_mapping": {"a": "b"}}, ['--transform_name_mapping={"a": "b"}']),
        ({"job_server_timeout": 5}, ["--job_server_timeout=5"]),
    ],
    ids=str,
)
def test_options_are_written_as_beam_reads_them(given: dict, flags: list[str]) -> None:
    options = ConvertOptions(runner="DataflowRunner", runner_options=given)
    assert beam_flags(options) == flags
