"""What has the bytes of removed records under other names is named, and goes too if asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from helpers.growing_cases import QUIET, drawn
from support import invoke

import tfrecorder
from tfrecorder.errors import OptionError
from tfrecorder.schema import Image, Schema, Split


@pytest.fixture(autouse=True)
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four images of their own bytes, and copies of the first under other names."""
    monkeypatch.chdir(tmp_path)
    drawn("img", 4, (9, 9))


def frame(*names: str) -> pd.DataFrame:
    return pd.DataFrame({"split": "TRAIN", "image_uri": [f"img/{name}.png" for name in names]})


def with_copies(count: int, out: str = "out") -> list[str]:
    """A dataset of the four images and some copies of the first, whose uris are returned."""
    names = [f"copy{number:02d}" for number in range(count)]
    for name in names:
        shutil.copy("img/0.png", f"img/{name}.png")
    tfrecorder.convert(frame(*"0123", *names), out, num_shards=3, shuffle=False, **QUIET)
    return [f"img/{name}.png" for name in names]


def uris(out: str = "out") -> list[str]:
    return sorted(tfrecorder.to_frame(out)["image_uri"])


FIRST = {"image_uri": "img/0.png"}


def test_copies_are_counted_and_the_first_ten_named_before_and_after() -> None:
    copies = with_copies(12)
    before = str(tfrecorder.remove("out", FIRST, dry_run=True, **QUIET))
    after = str(tfrecorder.remove("out", FIRST, **QUIET))
    for said in (before, after):
        assert "copies with the same bytes stay, 12: 'img/copy00.png', " in said
        assert "'img/copy09.png', … 2 more; the option for copies removes them too" in said
        assert "copy10" not in said
    assert uris() == sorted(["img/1.png", "img/2.png", "img/3.png", *copies])


def test_they_go_too_if_asked_and_nothing_names_them() -> None:
    copies = with_copies(2)
    before = str(tfrecorder.remove("out", FIRST, copies=True, dry_run=True, **QUIET))
    result = tfrecorder.remove("out", FIRST, copies=True, **QUIET)
    assert result.changes.removed == 3
    for said in (before, str(result)):
        assert "3 rows are removed" in said
        assert "copies with the same bytes go too: 2" in said
    assert uris() == ["img/1.png", "img/2.png", "img/3.png"]
    assert tfrecorder.verify("out", absent=["img/0.png", *copies], progress=False).ok
    assert tfrecorder.append(frame("0", "copy00"), "out", **QUIET).removed == 2


def test_what_has_no_copy_says_nothing_of_them() -> None:
    with_copies(1)
    assert "bytes" not in str(tfrecorder.remove("out", {"image_uri": "img/1.png"}, **QUIET).notes)
    both = {"image_uri": ["img/0.png", "img/copy00.png"]}
    assert not tfrecorder.remove("out", both, **QUIET).notes


def test_a_row_of_several_images_has_copies_of_all_of_them() -> None:
    pairs = Schema(split=Split(), right_uri=Image(), left_uri=Image())
    shutil.copy("img/0.png", "img/copy.png")
    both = [("0", "1"), ("copy", "1"), ("copy", "2"), ("1", "0")]
    table = pd.DataFrame(both, columns=["left_uri", "right_uri"])
    table = table.map("img/{}.png".format).assign(split="TRAIN")
    tfrecorder.convert(table, "out", schema=pairs, **QUIET)
    where = {"left_uri": "img/0.png"}
    said = str(tfrecorder.remove("out", where, dry_run=True, **QUIET))
    assert "copies with the same bytes stay, 1: 'img/copy.png'" in said
    tfrecorder.remove("out", where, **QUIET)
    result = tfrecorder.remove("out", where, copies=True, **QUIET)
    assert (result.removed, result.changes.removed) == (1, 1)
    left = sorted(tfrecorder.to_frame("out")["right_uri"])
    assert left == ["img/0.png", "img/2.png"]


@pytest.mark.parametrize("elsewhere", [(), ("other",)], ids=["in place", "elsewhere"])
def test_a_compaction_that_drops_says_and_does_the_same(elsewhere: tuple[str, ...]) -> None:
    copies = with_copies(1)
    for out, takes, left in (
        ("out", False, ["img/1.png", "img/2.png", "img/3.png", *copies]),
        ("again", True, ["img/1.png", "img/2.png", "img/3.png"]),
    ):
        if out == "again":
            with_copies(1, out)
        to = elsewhere and (f"{out}-2",)
        said = (
            "stay, 1: 'img/copy00.png'; the option"
            if not takes
            else "copies with the same bytes go too: 1"
        )
        drop = {"drop": ["img/0.png"], "copies": takes}
        assert said in str(tfrecorder.compact(out, *to, dry_run=True, **drop, **QUIET))
        assert said in str(tfrecorder.compact(out, *to, **drop, **QUIET))
        assert uris(*(to or (out,))) == sorted(left)


def test_copies_of_nothing_are_refused() -> None:
    with_copies(1)
    with pytest.raises(OptionError, match=r"copies=True.*without `drop`"):
        tfrecorder.compact("out", copies=True, **QUIET)
    with pytest.raises(OptionError, match="copies='yes'"):
        tfrecorder.remove("out", FIRST, copies="yes", **QUIET)


def test_in_the_shell() -> None:
    with_copies(1)
    said = invoke("remove", "out", "image_uri=img/0.png", "--dry-run").output
    assert "copies with the same bytes stay, 1: 'img/copy00.png'; the option for copies" in said
    assert (
        "copies with the same bytes go too: 1"
        in invoke("remove", "out", "image_uri=img/0.png", "--copies").output
    )
    Path("gone.txt").write_text("img/1.png\n")
    assert invoke("compact", "out", "--drop", "gone.txt", "--copies").exit_code == 0
    assert uris() == ["img/2.png", "img/3.png"]
