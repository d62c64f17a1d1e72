"""Conversions and repairs that are killed at any moment: the short form of `make torture`."""

from __future__ import annotations

import dataclasses
import random
import threading
from pathlib import Path

import pytest
from torture.crashes import ATTACKED, Attacked, attack, check_killed
from torture.material import Material, digests, make_material

from tfrecorder.runners.beam_patches import stop_sampler


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("killed") / "material", rows=1500)


@pytest.mark.slow
@pytest.mark.parametrize("attacked", ATTACKED, ids=lambda attacked: attacked.name)
def test_what_is_killed_is_completed_to_the_same_bytes(
    attacked: Attacked, material: Material, tmp_path: Path
) -> None:
    # In the midst of it; `make torture` aims at all the other moments too.
    moment = "writing" if attacked.options else "repairing"
    aimed = dataclasses.replace(attacked, moments=(moment,))
    survived = attack(aimed, material, 2, tmp_path / "out", random.Random(attacked.name))
    assert survived.completed == 1
    assert survived.lost == 0


@pytest.mark.slow
def test_a_file_that_is_not_whole_is_noticed(material: Material) -> None:
    after = digests(material.whole)
    assert check_killed(material.whole, {}, after) == ""
    finished = {**digests(material.partly), "more": "x"}
    assert "['more'] are not as they must be" in check_killed(material.partly, {}, finished)
    assert check_killed(material.damaged, {}, after).endswith("is not whole")
    stood = {**digests(material.other), "more": "x"}
    assert "['more']" in check_killed(material.other, stood, after, overwrites=True)


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
    stop_sampler()
    assert sampler.finished
    thread.join(10)
    assert not thread.is_alive()
    stop_sampler()
