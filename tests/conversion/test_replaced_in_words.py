"""What a dataset holds is said before it is replaced or rewritten, and after a call again."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from helpers.growing_cases import QUIET, table
from helpers.public_types import Changes
from helpers.streaming_cases import TO_ITS_END, Numbered
from support import error_of, invoke

import tfrecorder
from tfrecorder.errors import OutputError

OPTIONS = {"num_shards": 2, **QUIET}


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twelve records of a conversion, four appended ones of a new class, and seven of a stream."""
    out = str(tmp_path_factory.mktemp("grown") / "out")
    tfrecorder.convert(table(0, 12), out, **OPTIONS)
    tfrecorder.append(table(12, 4), out, **QUIET)
    tfrecorder.stream(Numbered(10), out, **TO_ITS_END)
    return out


@pytest.fixture
def out(grown: str) -> str:
    return shutil.copytree(grown, "out")


def dry_run(*arguments: str) -> Changes:
    found = invoke(*arguments, "--dry-run", "--json")
    assert found.exit_code == 0, found.stderr
    return Changes(**json.loads(found.stdout)["changes"])


HOLDS = "23 records in 3 generations, 4 of them appended, 7 of them streamed from numbered"


@pytest.mark.slow
def test_what_was_appended_and_streamed_is_replaced_only_by_its_name(out: str) -> None:
    words = error_of(OutputError, table(0, 6), overwrite=True, **QUIET)
    assert f"`overwrite=True` would replace {HOLDS}." in words
    assert words.endswith("or `overwrite='all'` to replace these too.")
    assert words.index("`update`") < words.index("overwrite='all'")
    assert tfrecorder.info(out).records == 23
    table(0, 6).to_csv("six.csv", index=False)
    refused = invoke("convert", "six.csv", "out", "--overwrite", "--dry-run")
    assert refused.exit_code == 1
    assert refused.stderr.endswith("or --overwrite-all to replace these too.\n")
    assert dry_run("convert", "six.csv", "out", "--overwrite-all") == Changes(
        replaces=f"replaces {HOLDS}"
    )
    found = tfrecorder.convert("six.csv", out, overwrite="all", **QUIET)
    assert found.changes == Changes(replaces=f"replaces {HOLDS}")
    assert f"): replaces {HOLDS}\n" in str(found)
    assert tfrecorder.verify(out, progress=False).ok
    # Now it is of one conversion, which a table can make again.
    again = tfrecorder.convert(table(0, 5), out, overwrite=True, **QUIET)
    assert again.changes == Changes(replaces="replaces 6 records in 1 generation")


def test_without_overwrite_the_remedy_that_destroys_comes_last(out: str) -> None:
    words = error_of(OutputError, table(0, 12, label="cat"), **OPTIONS)
    assert words.startswith("the values in the source's rows have changed; ")
    assert f"is a finished dataset of {HOLDS}. `update` corrects it" in words
    assert words.endswith("or `overwrite='all'` to replace it.")
    words = error_of(OutputError, table(0, 12), **{**OPTIONS, "num_shards": 3})
    assert "now is 3" in words
    assert "`update`" not in words


def test_an_unfinished_operation_that_is_given_up_is_named(out: str) -> None:
    tfrecorder.append(table(30, 3), out, stage_only=True, **QUIET)
    changes = Changes(replaces=f"replaces {HOLDS}; abandons an unfinished append of 3 rows")
    table(0, 6).to_csv("six.csv", index=False)
    assert dry_run("convert", "six.csv", "out", "--overwrite-all") == changes
    assert tfrecorder.convert("six.csv", out, overwrite="all", **QUIET).changes == changes


def test_a_copy_keeps_what_is_known_of_the_records(out: str) -> None:
    gone, shards = table(12, 1)["image_uri"][0], tfrecorder.status(out).shards
    found = tfrecorder.compact(out, "copy", drop=[gone], **QUIET)
    assert found.changes == Changes(removed=1, of_shards=shards)
    words = error_of(OutputError, table(0, 6), "copy", overwrite=True, **QUIET)
    assert "22 records in 1 generation, up to 4 of them appended, up to 7 of them streamed" in words


def test_the_first_call_again_describes_all_generations(out: str) -> None:
    found = tfrecorder.convert(table(0, 12), out, **OPTIONS)
    info = tfrecorder.info(out)
    assert (found.was_finished, found.generation, found.records) == (True, 2, info.records)
    assert found.class_names == tuple(info.class_names) == ("brick", "cat", "a", "b")
    assert found.bytes == sum(path.stat().st_size for path in Path(out).glob("*.tfrecord"))
    assert found.origins == {"conversion": 12, "append": 4, "numbered": 7}
    assert found.rejects == tfrecorder.status(out).rejects
    assert str(found).startswith(
        "23 records in out, 4 of them appended, 7 of them streamed from numbered since, which was "
        "finished before: nothing was written"
    )
    staged = tfrecorder.parts.commit(out)
    assert dataclasses.replace(staged, warnings=found.warnings, seconds=found.seconds) == found


def test_status_and_an_append_of_nothing_describe_all_generations(out: str) -> None:
    assert f"\n{HOLDS}\n" in str(tfrecorder.status(out))
    words = (
        "out: nothing to append, 4 rows are already there, as records or rejects; the dataset "
        "has 23 records, 4 of them appended, "
    )
    nothing = tfrecorder.append(table(12, 4), out, **QUIET)
    assert str(nothing).startswith(words)
    assert nothing.records == 0
    assert str(tfrecorder.append(table(12, 4), out, dry_run=True, **QUIET)).startswith(
        f"dry run: {words}"
    )


def test_a_compaction_says_before_and_after_what_it_rewrites(out: str) -> None:
    size, shards = tfrecorder.status(out).bytes, tfrecorder.status(out).shards
    changes = dry_run("compact", "out", "--num-shards", "1")
    shown = tfrecorder.compact(out, num_shards=1, dry_run=True, **QUIET)
    assert changes == shown.changes
    said = f"{shards} of {shards} shards ({size / 1024:.1f} KiB) are written again; nothing"
    assert f"out: {said}" in str(shown)
    assert tfrecorder.status(out).shards == shards
    assert tfrecorder.compact(out, num_shards=1, **QUIET).changes == changes
    assert tfrecorder.convert(table(0, 12), out, **OPTIONS).was_finished
    words = error_of(OutputError, table(0, 12), overwrite=True, **OPTIONS)
    assert "23 records in 1 generation, 4 of them appended, 7 of them streamed from num" in words


@pytest.mark.slow
def test_a_compaction_names_the_shards_that_stay_and_the_records_that_go(out: str) -> None:
    for number in (40, 41):
        tfrecorder.append(table(number, 1), out, **QUIET)
    large = max(path.stat().st_size for path in Path(out).glob("*.tfrecord"))
    change = tfrecorder.compact(out, shard_size=large, dry_run=True, **QUIET).changes
    assert 2 <= change.shards < change.of_shards == tfrecorder.status(out).shards
    assert tfrecorder.compact(out, shard_size=large, **QUIET).changes == change
    Path("drop.txt").write_text(table(12, 1)["image_uri"][0] + "\n")
    change = dry_run("compact", "out", "--drop", "drop.txt")
    assert change.removed == 1
    assert tfrecorder.compact(out, drop="drop.txt", **QUIET).changes == change
    assert tfrecorder.verify(out, progress=False).ok


@pytest.mark.slow
def test_the_first_call_again_after_a_correction_says_that_there_was_one(out: str) -> None:
    corrected = table(0, 12)
    corrected.loc[3, "label"] = "cat"
    tfrecorder.update(corrected, out, **QUIET)
    again = tfrecorder.convert(table(0, 12), out, **OPTIONS)
    assert (again.was_finished, again.updates, again.records) == (True, 1, 23)
    assert "streamed from numbered, corrected by 1 update since, which was finished" in str(again)
    words = error_of(OutputError, table(0, 13), **OPTIONS)
    assert "7 of them streamed from numbered, corrected by 1 update. `update`" in words
    tfrecorder.compact(out, num_shards=1, **QUIET)
    tfrecorder.remove(out, {"row": 4}, **QUIET)
    again = tfrecorder.convert(table(0, 12), out, **OPTIONS)
    assert (again.was_finished, again.updates, again.records) == (True, 1, 22)
    assert "1 removed, corrected by 1 update since" in str(again)
    # A row that was removed stays out of an overwrite, and its next call is the same again.
    shutil.rmtree(out)
    assert tfrecorder.convert(table(0, 12), out, **OPTIONS).records == 12
    tfrecorder.remove(out, {"row": 4}, **QUIET)
    assert tfrecorder.convert(table(0, 12), out, overwrite=True, **OPTIONS).records == 11
    assert tfrecorder.convert(table(0, 12), out, **OPTIONS).was_finished
    assert tfrecorder.verify(out, progress=False).ok


def test_what_undo_takes_back_is_not_counted(out: str) -> None:
    corrected = table(0, 12)
    corrected.loc[3, "label"] = "cat"
    tfrecorder.update(corrected, out, **QUIET)
    tfrecorder.undo(out)
    again = tfrecorder.convert(table(0, 12), out, **OPTIONS)
    assert (again.was_finished, again.updates) == (True, 0)
    assert tfrecorder.verify(out, progress=False).ok
