"""Damaged images against TensorFlow: the short form of `make torture`."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import ImageFile
from support import TESTS

from torture import fuzzing, judging, mutations
from torture.children import Child, DiedError, FailedError, HungError
from torture.counts import BrokenError
from torture.judging import Accepted, Refused

#: Mutations that broke the law once.
ONCE_BROKEN = sorted((TESTS / "torture" / "once_broken").iterdir())


@pytest.mark.slow
def test_the_law_holds_for_a_thousand_mutations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # TFDS sets it where it draws; Pillow's words, which are compared here, are others then.
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", False)
    of_images, end_to_end = fuzzing.fuzz(1000, tmp_path, end_to_end=150)
    assert of_images.times == 1000
    assert end_to_end.lost == 0
    assert end_to_end.times >= 150


@pytest.mark.slow
@pytest.mark.parametrize("path", ONCE_BROKEN, ids=lambda path: path.name)
def test_what_broke_the_law_once_does_so_no_more(path: Path, monkeypatch) -> None:
    monkeypatch.setattr(fuzzing, "mutated", lambda name, seed: path.read_bytes())
    assert fuzzing.judge([("jpeg", seed) for seed in range(5)]).broken == {}


def test_a_mutation_is_the_same_every_time() -> None:
    for name in mutations.sources():
        assert mutations.mutated(name, 3) == mutations.mutated(name, 3)
    distinct = {mutations.mutated(*case) for case in fuzzing.cases(800)}
    assert len(distinct) > 700


@pytest.mark.slow
def test_a_breach_of_the_law_is_found_and_kept_as_a_file(tmp_path: Path, monkeypatch) -> None:
    data = mutations.mutated("jpeg", 0)
    wrong = Accepted(data, "jpeg", (1, 1, 3), None)

    def lying(self: Child, question: object) -> object:
        answer = ask(self, question)
        if isinstance(answer, judging.Verdict) and question == data:
            return judging.Verdict({"decode": wrong, "strict": wrong}, 0.0, answer.peak)
        return answer

    ask = Child.ask
    monkeypatch.setattr(Child, "ask", lying)
    with pytest.raises(BrokenError, match=r"mutated\('jpeg', 0\): .*recorded as"):
        fuzzing.fuzz(len(mutations.sources()), tmp_path, end_to_end=1)
    assert (tmp_path / "broken/000").read_bytes() == data


@pytest.mark.slow
def test_a_reason_that_is_not_true_is_noticed() -> None:
    sound = mutations.sources()
    for code in ("empty", "not_an_image", "too_large", "damaged", "truncated", "invented"):
        for name in ("jpeg", "png 2/8", "bmp"):
            found = judging.contradiction((sound[name], Refused("check", code, code)))
            assert found, (code, name)
    assert judging.contradiction((b"", Refused("check", "empty", "empty"))) == ""
    assert judging.contradiction((b"hello", Refused("check", "not_an_image", ""))) == ""


@pytest.mark.slow
def test_a_process_that_dies_fails_or_hangs_is_told_from_one_that_answers() -> None:
    with Child("os:_exit", seconds=20) as child, pytest.raises(DiedError, match="ended with 3"):
        child.ask(3)
    with Child("time:sleep", seconds=20) as child, pytest.raises(FailedError, match="TypeError"):
        child.ask("x")
    with Child("time:sleep", seconds=2) as child:
        with pytest.raises(HungError):
            child.ask(60)
        assert child.ask(0) is None
