"""What was removed from a dataset does not come back, unless it is asked for."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.growing_cases import QUIET, drawn
from services.gcs.control import Gcs
from support import dry_run, invoke

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.schema import Image, Schema, Split

pytest_plugins = ["services.gcs.fixtures"]

#: The options of a stream that ends when its folder is read.
ONCE = {"until_idle": 0.4, "source_options": {"settle": 0.1}, "progress": False}


@pytest.fixture(autouse=True)
def images(tmp_path, monkeypatch) -> None:
    """Six images, each of its own bytes."""
    monkeypatch.chdir(tmp_path)
    drawn("img", 6, (9, 9))


def frame(*names: str) -> pd.DataFrame:
    return pd.DataFrame({"split": "TRAIN", "image_uri": [f"img/{n}.png" for n in names]})


def uris(out: str) -> list[str]:
    return sorted(tfrecorder.to_frame(out)["image_uri"])


def without_two(out: str = "out") -> str:
    """A dataset of the images 0 to 5, of which 2 and 3 were removed."""
    tfrecorder.convert(frame(*"012345"), out, **QUIET)
    result = tfrecorder.compact(out, drop=["img/2.png", "img/3.png"], **QUIET)
    assert result.records == 4
    return out


def marks(out: str) -> list[Path]:
    return sorted(Path(out, "_tfrecorder/removed").glob("*"))


@pytest.mark.slow
def test_append_leaves_out_what_was_removed_and_says_so() -> None:
    out = without_two()
    drawn("img", 7, (9, 9))
    would = tfrecorder.append(frame(*"0123456"), out, dry_run=True, **QUIET)
    result = tfrecorder.append(frame(*"0123456"), out, **QUIET)
    assert (result.records, result.rows_there, result.removed) == (1, 4, 2)
    lets_in = "an append with `readmit=True` lets them in"
    words = f"removed before: 2 rows, which stay out; {lets_in}"
    assert words in str(result)
    assert words in str(would)
    assert uris(out) == [f"img/{n}.png" for n in "01456"]
    again = tfrecorder.append(frame(*"0123456"), out, **QUIET)
    assert (again.was_finished, again.rows_there, again.removed) == (True, 5, 2)
    assert tfrecorder.verify(out, progress=False).ok


def test_a_removed_image_is_known_by_its_bytes_wherever_it_lies() -> None:
    out = without_two()
    shutil.copy("img/2.png", "img/new name.png")
    named = pd.DataFrame({"split": ["TRAIN"], "image_uri": ["img/new name.png"]})
    in_cells = pd.DataFrame({"split": ["TRAIN"], "image_uri": [Path("img/3.png").read_bytes()]})
    for table in (named, in_cells):
        for duplicates in ("name", "keep"):
            result = tfrecorder.append(table, out, duplicates=duplicates, **QUIET)
            assert (result.removed, result.splits) == (1, {})
    assert uris(out) == [f"img/{n}.png" for n in "0145"]


@pytest.mark.slow
def test_a_row_of_several_images_is_known_by_all_of_them() -> None:
    pairs = Schema(split=Split(), left_uri=Image(), right_uri=Image())

    def rows(*names: str) -> pd.DataFrame:
        both = [(f"img/{left}.png", f"img/{right}.png") for left, right in names]
        return pd.DataFrame(both, columns=["left_uri", "right_uri"]).assign(split="TRAIN")

    tfrecorder.convert(rows("01", "23"), "out", schema=pairs, **QUIET)
    tfrecorder.remove("out", {"row": 0}, **QUIET)
    for name, copy in (("0", "7"), ("1", "8")):
        shutil.copy(f"img/{name}.png", f"img/{copy}.png")
    result = tfrecorder.append(rows("01", "78", "18", "05", "10"), "out", **QUIET)
    assert (result.records, result.removed) == (3, 2)


def test_images_that_came_as_bytes_are_known_again() -> None:
    cells = [Path(f"img/{n}.png").read_bytes() for n in range(3)]
    table = pd.DataFrame({"split": "TRAIN", "image_uri": cells})
    tfrecorder.convert(table, "out", **QUIET)
    tfrecorder.compact("out", drop=uris("out")[:1], **QUIET)
    assert tfrecorder.append(table, "out", **QUIET).removed == 1


@pytest.mark.slow
def test_no_name_and_no_byte_of_it_is_kept() -> None:
    tfrecorder.compact(without_two(), "elsewhere", **QUIET)
    for out in ("out", "elsewhere"):
        for path in Path(out).rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            assert b"img/2.png" not in data
            assert Path("img/2.png").read_bytes() not in data
    kept, copied = (json.loads(marks(out)[0].read_text()) for out in ("out", "elsewhere"))
    assert kept == copied
    assert tfrecorder.append(frame(*"23"), "elsewhere", **QUIET).removed == 2
    without_two("other")
    assert not {*kept["places"]} & {*json.loads(marks("other")[0].read_text())["places"]}


@pytest.mark.slow
def test_readmit_lets_it_in_for_good() -> None:
    out = without_two()
    result = tfrecorder.append(frame(*"0123"), out, readmit=True, **QUIET)
    assert (result.records, result.rows_there, result.removed) == (2, 2, 0)
    assert uris(out) == [f"img/{n}.png" for n in "012345"]
    tfrecorder.compact(out, drop=["img/0.png"], **QUIET)
    assert len(marks(out)) == 1
    shutil.copy("img/2.png", "img/9.png")
    assert tfrecorder.append(frame(*"029"), out, **QUIET).removed == 1
    assert uris(out) == sorted(f"img/{n}.png" for n in "123459")


@pytest.mark.slow
def test_a_readmission_that_is_abandoned_leaves_the_marks() -> None:
    out = without_two()
    before = marks(out)
    tfrecorder.append(frame(*"23"), out, readmit=True, stage_only=True, **QUIET)
    assert len(marks(out)) == 2
    tfrecorder.undo(out)
    assert marks(out) == before
    assert tfrecorder.append(frame(*"23"), out, **QUIET).removed == 2


@pytest.mark.slow
def test_a_readmission_that_is_taken_back_leaves_the_marks_even_after_an_update() -> None:
    out = without_two()
    tfrecorder.update(frame(*"0145").assign(split=["TEST", *["TRAIN"] * 3]), out, **QUIET)
    tfrecorder.append(frame(*"23"), out, readmit=True, **QUIET)
    tfrecorder.undo(out)
    assert tfrecorder.verify(out, progress=False).ok
    assert tfrecorder.append(frame(*"23"), out, **QUIET).removed == 2


@pytest.mark.slow
def test_overwrites_and_compactions_keep_the_marks() -> None:
    out = without_two()
    result = tfrecorder.convert(frame(*"01234"), out, overwrite=True, **QUIET)
    assert (result.records, result.removed) == (3, 2)
    again = tfrecorder.convert(frame(*"01234"), out, **QUIET)
    assert (again.was_finished, again.removed) == (True, 2)
    tfrecorder.append(frame(*"5"), out, **QUIET)
    tfrecorder.compact(out, num_shards=1, **QUIET)
    assert tfrecorder.append(frame(*"23"), out, **QUIET).removed == 2
    assert uris(out) == [f"img/{n}.png" for n in "0145"]


@pytest.mark.slow
def test_damaged_marks_let_nothing_in() -> None:
    out = without_two()
    file = marks(out)[0]
    file.write_bytes(file.read_bytes().replace(b'"sizes"', b'"sizez"'))
    report = tfrecorder.verify(out, progress=False)
    assert [fault.code for fault in report.found] == ["damaged"]
    with pytest.raises(DatasetError, match="says which rows were removed and must not come back"):
        tfrecorder.append(frame(*"23"), out, **QUIET)
    file.unlink()
    assert [f.code for f in tfrecorder.verify(out, progress=False).found] == ["missing"]


@pytest.mark.slow
def test_a_stream_passes_over_what_was_removed() -> None:
    tfrecorder.stream("img", "out", **ONCE)
    tfrecorder.compact("out", drop=["2.png", "3.png"], **QUIET)
    shutil.copy("img/2.png", "img/9.png")
    result = tfrecorder.stream("img", "out", **ONCE)
    assert (result.records, result.generations, result.removed) == (0, 0, 3)
    assert "removed before: 3 rows" in str(result)
    drawn("more", 7, (9, 9))
    shutil.copy("more/6.png", "img/6.png")
    result = tfrecorder.stream("img", "out", **ONCE)
    assert (result.records, result.removed) == (1, 3)
    assert uris("out") == [f"{n}.png" for n in "01456"]
    result = tfrecorder.stream("img", "out", readmit=True, **ONCE)
    assert (result.records, result.removed) == (3, 0)
    assert tfrecorder.stream("img", "out", **ONCE).removed == 0
    assert uris("out") == [f"{n}.png" for n in "01234569"]
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.slow
def test_on_the_command_line() -> None:
    without_two()
    frame(*"23").to_csv("two.csv", index=False)
    assert "removed before: 2 rows" in invoke("append", "two.csv", "out").output
    assert (
        "2 records added to out, which has 6 now"
        in invoke("append", "two.csv", "out", "--readmit").output
    )


ODD = 'img/Jürgen\'s "photo", 1.png'


def files_naming(out: str, *uris: str) -> dict[str, set[str]]:
    """Which of these uris each file names, as `verify` says."""
    found: dict[str, set[str]] = {}
    for fault in tfrecorder.verify(out, progress=False, absent=uris).found:
        assert fault.code == "named"
        named = [uri for uri in uris if f"it names {uri!r}," in fault.message]
        found.setdefault(fault.file, set()).update(named)
    return found


def test_verify_finds_every_file_that_names_what_must_be_gone() -> None:
    shutil.copy("img/1.png", ODD)
    Path("img/4.png").write_bytes(b"no image")
    table = pd.concat([frame(*"01234"), pd.DataFrame({"split": ["TRAIN"], "image_uri": [ODD]})])
    tfrecorder.convert(table, "out", num_shards=1, max_reject_fraction=0.5, **QUIET)
    shard, rows = "train-00000.tfrecord", "_tfrecorder/tables/train-00000.parquet"
    assert files_naming("out", ODD, "img/0.png") == {
        shard: {ODD, "img/0.png"},
        rows: {ODD, "img/0.png"},
    }
    assert files_naming("out", "img/4.png") == {"rejects.csv": {"img/4.png"}, rows: {"img/4.png"}}
    assert files_naming("out", "0.png") == files_naming("out", "0.png", "mg/0.png")
    assert not files_naming("out", "img/0.pn", "mg/0.png", "img/00.png")
    tfrecorder.compact("out", drop=[ODD, "img/4.png"], **QUIET)
    assert files_naming("out", ODD, "img/4.png") == {}
    Path("out/_tfrecorder/note.json").write_text(json.dumps({"position": json.dumps([ODD, 1])}))
    assert files_naming("out", ODD, "img/4.png") == {"_tfrecorder/note.json": {ODD}}


def test_verify_searches_for_a_list_of_uris_on_the_command_line() -> None:
    without_two()
    Path("gone.txt").write_text("img/2.png\nimg/3.png\n")
    good = invoke("verify", "out", "--absent", "gone.txt")
    assert good.exit_code == 0
    assert "of 2 uris, none appears in any file" in good.output
    Path("gone.txt").write_text("img/0.png\nimg/3.png\n")
    bad = invoke("verify", "out", "--absent", "gone.txt")
    assert bad.exit_code == 1
    assert "named: it names 'img/0.png', which must be absent" in bad.output


@pytest.mark.slow
def test_undo_of_a_readmission_takes_the_rows_out_again_for_good() -> None:
    out = without_two()
    tfrecorder.append(frame(*"23"), out, readmit=True, **QUIET)
    tfrecorder.undo(out)
    assert uris(out) == [f"img/{n}.png" for n in "0145"]
    assert tfrecorder.verify(out, progress=False).ok
    assert tfrecorder.append(frame(*"23"), out, **QUIET).removed == 2


@pytest.mark.slow
def test_a_bucket_that_keeps_what_is_removed_is_named(gcs: Gcs) -> None:
    tfrecorder.convert(frame(*"012"), "gs://bkt/out", **QUIET)
    assert not tfrecorder.compact("gs://bkt/out", drop=["img/0.png"], **QUIET).notes
    policies = {"softDeletePolicy": {"retentionDurationSeconds": "604800"}}
    gcs.rule("bkt", policies={**policies, "versioning": {"enabled": True}})
    words = (
        "gs://bkt keeps removed objects for 7 days after they are removed (soft delete), and as "
        "older versions until these are removed too (versioning)"
    )
    image = {"image_uri": "img/1.png"}
    assert words in str(tfrecorder.remove("gs://bkt/out", image, dry_run=True, **QUIET))
    assert words in str(tfrecorder.remove("gs://bkt/out", image, **QUIET))
    assert tfrecorder.append(frame(*"01"), "gs://bkt/out", **QUIET).removed == 2
    assert tfrecorder.verify("gs://bkt/out", absent=["img/0.png"], progress=False).ok


def test_of_many_uris_the_same_are_found_as_of_each_alone() -> None:
    shutil.copy("img/1.png", ODD)
    odd = pd.DataFrame({"split": ["TRAIN"], "image_uri": [ODD]})
    tfrecorder.convert(pd.concat([frame(*"01234"), odd]), "out", num_shards=1, **QUIET)
    some = ["img/0.png", "0.png", "g/0.png", "img/00.png", "png", "img", "a", "", ODD, ODD[4:]]
    many = [f"gs://photos/{n:06}.jpg" for n in range(20_000)]
    began = time.monotonic()
    found = files_naming("out", *some, *many)
    assert time.monotonic() - began < 20  # it was 93 s
    alone: dict[str, set[str]] = {}
    for uri in [*some, *many[:3]]:
        for file in files_naming("out", uri):
            alone.setdefault(file, set()).add(uri)
    assert found == alone
    assert any(ODD in named for named in found.values())
    with pytest.raises(OptionError, match=r"absent='\\ud800': this is no uri"):
        tfrecorder.verify("out", absent=["\ud800"])


@pytest.mark.slow
def test_remove_leaves_nothing_that_names_the_rows_and_marks_them() -> None:
    tfrecorder.convert(frame(*"012345"), "out", num_shards=2, **QUIET)
    tfrecorder.append(frame(*"01234"), "out", duplicates="keep", **QUIET)
    gone = ["img/2.png", "img/3.png"]
    tfrecorder.remove("out", {"image_uri": gone}, **QUIET)
    assert tfrecorder.verify("out", absent=gone, progress=False).ok
    shutil.copy("img/2.png", "img/9.png")
    for add in (tfrecorder.append, tfrecorder.update):
        result = add(frame(*"0123459"), "out", **QUIET)
        assert result.removed == 3
        assert "removed before: 3 rows" in str(result)
    assert not {*uris("out")} & {*gone, "img/9.png"}
    result = tfrecorder.update(frame(*"0123459"), "out", readmit=True, **QUIET)
    assert (result.removed, result.changes.added) == (0, 3)
    assert {*gone, "img/9.png"} <= {*uris("out")}
    assert tfrecorder.append(frame(*"239"), "out", **QUIET).removed == 0


@pytest.mark.slow
@pytest.mark.parametrize("add", [tfrecorder.append, tfrecorder.update])
@pytest.mark.parametrize("boxes", [0, 2])
@pytest.mark.parametrize(
    "strict", [{"new_classes": "refuse"}, {"warnings": ["similar_labels"]}], ids=str
)
def test_classes_of_rows_that_stay_out_do_not_come_either(
    add: Callable, boxes: int, strict: dict[str, Any]
) -> None:
    corners = [(0.1 * n, 0, 0.9, 0.9) for n in range(boxes)]

    def labelled(*labels: str) -> pd.DataFrame:
        rows = frame(*"0123"[: len(labels)]).assign(label=labels)
        edges = pd.DataFrame(corners, columns=["x_min", "y_min", "x_max", "y_max"])
        return rows.merge(edges, how="cross") if boxes else rows

    tfrecorder.convert(labelled("cat", "cat", "cat"), "out", **QUIET)
    tfrecorder.remove("out", {"image_uri": ["img/2.png"]}, **QUIET)
    table = labelled("cat", "cat", "Cat", "cat")
    result = add(table, "out", **strict, **QUIET)
    assert (result.class_names, result.removed) == (("cat",), boxes or 1)
    assert {*uris("out")} == {"img/0.png", "img/1.png", "img/3.png"}
    assert tfrecorder.info("out").class_names == ("cat",)


@pytest.mark.slow
def test_images_that_come_as_bytes_stay_out_of_an_update_too() -> None:
    """Whether they have names or not."""
    for name in ({"path": "2.png"}, {}):
        cells = [Path(f"img/{n}.png").read_bytes() for n in "0123"]
        rows = pd.DataFrame({"split": "TRAIN", "image_uri": cells, "label": "cat"})
        named = {"bytes": cells[2], **name} if name else cells[2]
        rows = rows.assign(image_uri=[*cells[:2], named, cells[3]])
        out = f"out{len(name)}"
        tfrecorder.convert(rows[:3], out, **QUIET)
        tfrecorder.remove(out, lambda there: there["row"] == 2, **QUIET)
        rows.loc[2, "label"] = "dgo"
        result = tfrecorder.update(rows, out, new_classes="refuse", **QUIET)
        assert (result.records, result.removed, result.class_names) == (3, 1, ("cat",))


@pytest.mark.slow
def test_what_update_removes_as_missing_comes_back() -> None:
    tfrecorder.convert(frame(*"0123"), "out", **QUIET)
    tfrecorder.update(frame(*"01"), "out", missing="remove", **QUIET)
    result = tfrecorder.append(frame(*"0123"), "out", **QUIET)
    assert (result.records, result.removed) == (2, 0)


@pytest.mark.slow
def test_undo_of_an_update_that_readmits_takes_the_rows_out_again() -> None:
    out = without_two()
    tfrecorder.update(frame(*"0123"), out, readmit=True, **QUIET)
    assert uris(out) == [f"img/{n}.png" for n in "012345"]
    tfrecorder.undo(out)
    assert uris(out) == [f"img/{n}.png" for n in "0145"]
    assert tfrecorder.append(frame(*"23"), out, **QUIET).removed == 2


@pytest.mark.slow
def test_a_removal_that_empties_a_shard_writes_nothing_and_commits() -> None:
    tfrecorder.convert(frame(*"01"), "out", **QUIET)
    tfrecorder.append(frame(*"23"), "out", **QUIET)
    result = tfrecorder.remove("out", {"image_uri": ["img/2.png", "img/3.png"]}, **QUIET)
    assert result.records == 2
    assert uris("out") == ["img/0.png", "img/1.png"]
    assert tfrecorder.verify("out", absent=["img/2.png"], progress=False).ok


@pytest.mark.slow
def test_overwrite_all_begins_anew_and_says_so() -> None:
    would = dry_run(frame(*"0123"), without_two(), overwrite="all")
    result = tfrecorder.convert(frame(*"0123"), "out", overwrite="all", **QUIET)
    assert (result.records, result.removed) == (4, 0)
    words = "begun anew: the marks of 2 removed rows are dropped, which may come in again"
    assert words in str(result)
    assert words in would["notes"]
    assert tfrecorder.append(frame(*"23"), "out", duplicates="keep", **QUIET).records == 2


@pytest.mark.slow
def test_repair_of_a_manifest_keeps_the_marks() -> None:
    Path(without_two(), "_tfrecorder/commits/00001.json").unlink()
    tfrecorder.repair("out", progress=False)
    assert tfrecorder.verify("out", progress=False).ok
    assert tfrecorder.append(frame(*"23"), "out", **QUIET).removed == 2
