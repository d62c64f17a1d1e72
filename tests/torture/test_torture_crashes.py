"""Conversions and repairs that are killed at any moment: the short form of `make torture`."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from torture.crashes import ATTACKED, Attacked, attack, check_killed
from torture.material import Material, digests, make_material


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
    out, rng = tmp_path / "out", random.Random(attacked.name)
    calm = aimed.undisturbed(material, out)
    for _ in range(8):  # a repair is over before some kills
        survived = attack(aimed, calm, material, 2, out, rng)
        assert survived.completed == 1
        assert survived.lost == 0
        if survived.kills:
            return
    pytest.fail("nothing was killed")


@pytest.mark.slow
def test_a_file_that_is_not_whole_is_noticed(material: Material) -> None:
    after, written = digests(material.whole), digests(material.written)
    assert check_killed(material.whole, {}, after, written) == ""
    assert check_killed(material.written, {}, after, written) == ""
    assert check_killed(material.written, {}, after, {}).endswith("is not whole")
    finished = {**after, "more": "x"}
    assert "['more'] are not as they must be" in check_killed(material.whole, {}, finished, {})
    assert check_killed(material.damaged, {}, after, written).endswith("is not whole")
    stood = {**digests(material.other), "more": "x"}
    assert "['more']" in check_killed(material.other, stood, after, {}, changes=True)
    assert "no dataset" in check_killed(material.written, stood, after, written, changes=True)
