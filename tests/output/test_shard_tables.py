"""One table a shard: what became of each row, and what an append or a compaction makes of it.

The inner law: the columns of a table, and which rows an append takes for known.
"""

import dataclasses
import shutil
from pathlib import Path

import google_crc32c
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.growing_cases import QUIET, drawn, table
from PIL import Image
from support import PHOTOS, SAMPLES, filenames, public_files, rejects, shorten_patience

import tfrecorder
from tfrecorder.errors import DatasetError, UnreachableError
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.layout import BASE, COPY_OF, RECORD_OF, REJECT_OF, SourceOf
from tfrecorder.format.plan import PlanKind
from tfrecorder.output.staging import list_output, read_done, shard_fault
from tfrecorder.reading import merged_rows
from tfrecorder.reading.commits import newest_commit
from tfrecorder.reading.shard_tables import read_tables
from tfrecorder.schema.keys import FILENAME, SOURCE_ID
from tfrecorder.verification.sources import other_sources
from tfrecorder.writing.public_files import lists_of

OF_IMAGE = SourceOf(*(f"tfrecorder.source.{name}/image" for name in SourceOf._fields))
ALL = {**QUIET, "max_reject_fraction": 1.0}


def rows_of(out: str | Path, *columns: str) -> pd.DataFrame:
    """The tables of all shards, by the numbers of the rows."""
    newest = newest_commit(str(out))
    names = list(columns)
    rows = read_tables(str(out), newest.shards, lambda schema: names or schema.names)
    return rows.to_pandas() if names else rows.to_pandas().set_index(SOURCE_ID).sort_index()


def suspect(folder: str, name: str) -> None:
    """A photograph that decodes with a warning."""
    data, middle = PHOTOS[30].read_bytes(), len(PHOTOS[30].read_bytes()) // 2
    Path(folder, name).write_bytes(data[:middle] + bytes(500) + data[middle + 500 :])


def with_faults(folder: str) -> pd.DataFrame:
    """Six photographs, a suspect, an image cut short and one that is missing, in this order."""
    Path(folder).mkdir()
    for number, photo in enumerate(PHOTOS[:6]):
        shutil.copy(photo, Path(folder, f"{number}.jpg"))
    suspect(folder, "6.jpg")
    Path(folder, "7.jpg").write_bytes(PHOTOS[7].read_bytes()[:3000])
    uris = [f"{number}.jpg" for number in range(9)]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "x"})
    frame.to_csv(Path(folder, "all.csv"), index=False)
    return frame


# ---------------------------------------------------------------------------------------------
# What a table says.


def test_a_table_says_what_became_of_each_row() -> None:
    with_faults("photos")
    tfrecorder.convert("photos/all.csv", "out", num_shards=2, **ALL)
    rows = rows_of("out")
    assert rows[FILENAME].tolist() == [f"{number}.jpg" for number in range(9)]
    assert (rows[BASE] == str(Path("photos").absolute())).all()
    assert (rows[RECORD_OF.warning] != "").tolist() == [number == 6 for number in range(9)]
    assert rows[REJECT_OF.stage].tolist() == [""] * 7 + ["check", "read"]
    assert [reason.split(":")[0] for reason in rows[REJECT_OF.reason][7:]] == [
        "truncated",
        "not_found",
    ]
    assert (rows.loc[7:, list(RECORD_OF[:2])] == -1).all(axis=None)
    assert rows.loc[8, list(OF_IMAGE)].isna().all()
    data = [Path("photos", f"{number}.jpg").read_bytes() for number in range(8)]
    assert rows[OF_IMAGE.bytes][:8].tolist() == list(map(len, data))
    assert rows[OF_IMAGE.crc32c][:8].tolist() == list(map(google_crc32c.value, data))


def test_the_records_of_a_table_are_the_lines_of_the_index() -> None:
    with_faults("photos")
    tfrecorder.convert("photos/all.csv", "out", num_shards=2, **ALL)
    for shard in newest_commit("out").shards:
        rows = pq.read_table(Path("out", shard.table)).to_pandas()
        rows = rows[rows[RECORD_OF.size] >= 0]
        lines = Path("out", shard.index_file).read_text().splitlines()
        assert lines == [f"{at} {size}" for at, size in rows[list(RECORD_OF[:2])].to_numpy()]
        assert filenames("out", shard.name) == rows[FILENAME].tolist()


def test_equal_rows_make_equal_tables() -> None:
    with_faults("photos")
    for out in ("one", "two"):
        tfrecorder.convert("photos/all.csv", out, num_shards=2, num_threads=len(out), **ALL)
    for shard in newest_commit("one").shards:
        assert Path("one", shard.table).read_bytes() == Path("two", shard.table).read_bytes()


def test_of_several_images_each_has_its_size_and_checksum() -> None:
    Image.new("L", (120, 160)).save("mask.png")
    with Image.open(PHOTOS[0]) as photo:
        Image.new("L", photo.size).save("mask.png")
    frame = pd.DataFrame({"split": ["TRAIN"], "image_uri": [str(PHOTOS[0])]})
    tfrecorder.convert(
        frame.assign(mask_uri="mask.png"),
        "out",
        schema=tfrecorder.schema.Schema(
            split=tfrecorder.schema.Split(),
            image_uri=tfrecorder.schema.Image(),
            mask_uri=tfrecorder.schema.Mask(),
        ),
        **QUIET,
    )
    rows, mask = rows_of("out"), Path("mask.png").read_bytes()
    of_mask = SourceOf(*(name.replace("/image", "/image/segmentation/class") for name in OF_IMAGE))
    assert rows[of_mask.bytes].tolist() == [len(mask)]
    assert rows[of_mask.crc32c].tolist() == [google_crc32c.value(mask)]
    assert rows[OF_IMAGE.bytes].tolist() == [PHOTOS[0].stat().st_size]


@pytest.mark.slow
def test_a_compaction_keeps_what_is_known_of_the_sources() -> None:
    with_faults("photos")
    tfrecorder.convert("photos/all.csv", "out", **ALL)
    tfrecorder.append(table(20, 3), "out", **QUIET)
    before = rows_of("out")
    tfrecorder.compact("out", "compacted", **QUIET)
    after = rows_of("compacted")
    assert not {*COPY_OF} & {*after.columns}
    same = [name for name in before.columns if name != RECORD_OF.offset]
    pd.testing.assert_frame_equal(after[same], before[same])
    assert after[BASE].nunique() == 2


# ---------------------------------------------------------------------------------------------
# The public lists.


@pytest.mark.slow
def test_lists_grow_with_the_dataset_and_lose_what_is_won() -> None:
    frame = with_faults("photos")
    tfrecorder.convert("photos/all.csv", "out", **ALL)
    assert rejects("out")["row"].tolist() == [7, 8]
    shutil.copy(PHOTOS[8], "photos/8.jpg")
    suspect("photos", "9.jpg")
    more = pd.DataFrame({"split": "TRAIN", "image_uri": ["9.jpg", "10.jpg"], "label": "x"})
    pd.concat([frame, more]).to_csv("photos/all.csv", index=False)
    tfrecorder.append("photos/all.csv", "out", retry_rejects=True, **ALL)
    listed = rejects("out")
    assert listed["image_uri"].tolist() == ["7.jpg", "10.jpg"]
    assert listed["row"][0] == 7
    assert rejects("out", "suspects.csv")["image_uri"].tolist() == ["6.jpg", "9.jpg"]
    assert tfrecorder.to_frame("out").loc[8, "image_uri"] == "8.jpg"
    compacted = tfrecorder.compact("out", "compacted", **QUIET)
    assert compacted.rejects == {"check/truncated": 1, "read/not_found": 1}
    for name in ("rejects.csv", "suspects.csv"):
        assert public_files("compacted")[name] == public_files("out")[name]


@pytest.mark.slow
def test_lists_are_the_same_however_often_they_are_made() -> None:
    frame = with_faults("photos")
    tfrecorder.convert("photos/all.csv", "out", **ALL)
    more = frame.iloc[-2:].replace({"8.jpg": "10.jpg", "7.jpg": str(PHOTOS[9])})
    pd.concat([frame, more]).to_csv("photos/all.csv", index=False)
    tfrecorder.append("photos/all.csv", "out", **ALL)
    newest = newest_commit("out")
    plan = newest.plan
    done = dict(
        zip(
            plan.layout.shards,
            [DoneRecord(**values) for values in newest.manifest.commit.done_values],
            strict=True,
        )
    )
    assert lists_of(plan, done, "out") == {layout.REJECTS: Path("out", layout.REJECTS).read_bytes()}


@pytest.mark.slow
def test_a_batch_without_rejects_reads_no_list() -> None:
    tfrecorder.convert(table(0, 3), "out", **QUIET)
    tfrecorder.append(table(3, 3), "out", **QUIET)
    newest = newest_commit("out")
    plan = dataclasses.replace(newest.plan, kind=PlanKind.BATCH)
    done = {plan.layout.shards[0]: newest.done[plan.layout.shards[0]]}
    Path("out", layout.REJECTS).unlink()
    Path("out", plan.layout.shards[0].table).unlink()
    assert lists_of(plan, done, "out") == {}


# ---------------------------------------------------------------------------------------------
# Rows that are known.


@pytest.mark.slow
def test_each_of_several_rejects_of_one_image_keeps_its_number() -> None:
    Path("photos").mkdir()
    uris = ["a.jpg", "b.jpg", "a.jpg"]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "x"})
    frame.to_csv("photos/all.csv", index=False)
    for number, uri in enumerate(["0.jpg", "b.jpg"]):
        shutil.copy(PHOTOS[number], Path("photos", uri))
    tfrecorder.convert("photos/all.csv", "out", **ALL)
    assert rejects("out")["row"].tolist() == [0, 2]
    shutil.copy(PHOTOS[5], "photos/a.jpg")
    tfrecorder.append("photos/all.csv", "out", retry_rejects=True, **ALL)
    assert rejects("out").empty
    assert sorted(tfrecorder.to_frame("out").index) == [0, 1, 2]


@pytest.mark.slow
def test_boxes_of_a_reject_that_are_rows_keep_one_number() -> None:
    boxes = pd.DataFrame({"split": "TRAIN", "image_uri": ["a.jpg"] * 2 + ["b.jpg"] * 3})
    boxes = boxes.assign(x_min=0.1, y_min=0.1, x_max=[0.2, 0.3, 0.4, 0.5, 0.6], y_max=0.7)
    Path("photos").mkdir()
    boxes.to_csv("photos/all.csv", index=False)
    shutil.copy(PHOTOS[0], "photos/a.jpg")
    schema = tfrecorder.schema.Schema(
        split=tfrecorder.schema.Split(),
        image_uri=tfrecorder.schema.Image(),
        boxes=tfrecorder.schema.Boxes(label=None),
    )
    tfrecorder.convert("photos/all.csv", "out", schema=schema, **ALL)
    assert rejects("out")["row"].tolist() == [2]
    shutil.copy(PHOTOS[1], "photos/b.jpg")
    tfrecorder.append("photos/all.csv", "out", retry_rejects=True, **ALL)
    assert rejects("out").empty
    assert tfrecorder.to_frame("out").sort_index().index.tolist() == [0, 0, 2, 2, 2]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 33 tables and one append more; its first rows are relative to a folder."""
    folder = tmp_path_factory.mktemp("grown")
    splits = ["TRAIN", "VALIDATION", "TEST"]
    rows = [str(path.relative_to(SAMPLES)) for path in PHOTOS[:3]]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(SAMPLES)
        first = pd.DataFrame({"split": splits, "image_uri": rows, "label": "x"})
        tfrecorder.convert(first, folder / "out", **QUIET)
    for number in range(1, 11):
        more = table(3 * number, 3, label="x").assign(split=splits)
        tfrecorder.append(more, folder / "out", **QUIET)
    assert not (folder / "out" / layout.ROWS).exists()
    tfrecorder.append(table(33, 1, label="x"), folder / "out", **QUIET)
    assert (folder / "out" / layout.ROWS).exists()
    return folder / "out"


@pytest.fixture
def copied(grown: Path) -> Path:
    shutil.copytree(grown, "out")
    return Path("out")


def known(out: Path) -> int:
    """How many of the rows of a dataset, and one new row, are known there."""
    everything = pd.concat([table(0, 34, label="x"), table(40, 1, label="x")])
    before = newest_commit(str(out)).number
    result = tfrecorder.append(everything, out, **QUIET)
    assert newest_commit(str(out)).number == before + 1
    return result.rows_there


def test_an_append_searches_merged_tables(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    plain = merged_rows.each_table

    def each_table(directory, shards, chosen):
        read.extend(shard.name for shard in shards)
        return plain(directory, shards, chosen)

    monkeypatch.setattr(merged_rows, "each_table", each_table)
    assert known(copied) == 34
    assert {*read} == {"train-00011", "train-00012"}  # the second, its own, for near copies


@pytest.mark.parametrize(
    "harm",
    [
        lambda rows: rows.unlink(),
        lambda rows: rows.write_bytes(b""),
        lambda rows: rows.write_bytes(rows.read_bytes()[:-100]),
        lambda rows: pq.write_table(pa.table({"x": [1]}), rows),
    ],
)
def test_merged_rows_that_are_gone_or_damaged_are_merged_again(copied: Path, harm) -> None:
    harm(copied / layout.ROWS)
    assert known(copied) == 34
    assert pq.ParquetFile(copied / layout.ROWS).metadata.num_rows == 34


@pytest.mark.slow
def test_a_flipped_byte_in_merged_rows_changes_nothing(copied: Path) -> None:
    rows = copied / layout.ROWS
    newest, data = newest_commit(str(copied)), rows.read_bytes()
    columns = [SOURCE_ID, FILENAME, BASE]
    expected = {tuple(row) for row in rows_of(copied, *columns).to_numpy()}
    for at in range(0, len(data), 37):
        rows.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        read = pa.concat_tables(merged_rows.known_rows(str(copied), newest, columns))
        assert {tuple(row.values()) for row in read.to_pylist()} == expected, at


def test_merged_rows_of_another_dataset_are_not_searched(copied: Path) -> None:
    tfrecorder.convert(table(10, 3, label="x"), "other", **QUIET)
    shutil.copy(copied / layout.ROWS, Path("other", layout.ROWS))
    result = tfrecorder.append(table(0, 3, label="x"), "other", **QUIET)
    assert result.rows_there == 0


def test_a_compaction_in_place_leaves_no_merged_rows(copied: Path) -> None:
    tfrecorder.compact(copied, **QUIET)
    assert not (copied / layout.ROWS).exists()
    assert known(copied) == 34


# ---------------------------------------------------------------------------------------------
# Source files that are not what they were.


def test_the_rows_whose_files_changed_are_named_for_an_update() -> None:
    with_faults("photos")
    tfrecorder.convert("photos/all.csv", "out", num_shards=2, **ALL)
    shutil.copy(PHOTOS[20], "photos/3.jpg")
    newest = newest_commit("out")
    ((file, fault),) = other_sources("out", newest.shards, newest.plan.fields)
    assert (file.row, file.key, file.uri) == (3, "image", "3.jpg")
    assert fault.code == "source_changed"
    assert (file.shard.file, fault.record) in [
        (shard.file, filenames("out", shard.name).index("3.jpg"))
        for shard in newest.shards
        if "3.jpg" in filenames("out", shard.name)
    ]


@pytest.mark.slow
def test_a_disk_that_goes_away_meanwhile_is_an_error(monkeypatch) -> None:
    shorten_patience(monkeypatch)
    images = drawn("disk", 1200, (1, 1), "L")
    tfrecorder.convert(pd.DataFrame({"split": "TRAIN", "image_uri": images}), "out", **QUIET)
    newest = newest_commit("out")
    fields = newest.plan.fields

    def unmount(files: int) -> None:
        if Path("disk").exists():
            Path("disk").rename("away")

    with pytest.raises(UnreachableError, match=r"its folder .*/disk was there before"):
        list(other_sources("out", newest.shards, fields, advance=unmount))


# ---------------------------------------------------------------------------------------------
# What is damaged.


def test_a_missing_table_is_named() -> None:
    tfrecorder.convert(table(0, 3), "out", **QUIET)
    name = newest_commit("out").shards[0].table
    Path("out", name).unlink()
    for call in (
        lambda: tfrecorder.append(table(0, 4), "out", **QUIET),
        lambda: tfrecorder.compact("out", "other", **QUIET),
    ):
        with pytest.raises(DatasetError, match=rf"{name} cannot be read.*`tfrecorder verify"):
            call()


def test_the_table_of_another_shard_is_noticed() -> None:
    tfrecorder.convert(table(0, 6), "out", num_shards=2, **QUIET)
    one, two = newest_commit("out").shards
    shutil.copy(Path("out", one.table), Path("out", two.table))
    with pytest.raises(DatasetError, match=rf"{two.file} is not what its table says"):
        tfrecorder.compact("out", "other", **QUIET)


def test_a_shard_that_waits_is_done() -> None:
    tfrecorder.convert(table(0, 3), "out", **QUIET)
    newest = newest_commit("out")
    shard = newest.shards[0]
    done = newest.done[shard]
    Path("out", shard.done).parent.mkdir(exist_ok=True)
    Path("out", shard.done).write_bytes(done.to_json())
    assert read_done("out", shard, newest.digest) == done
    Path("out", shard.waiting).parent.mkdir(exist_ok=True)
    Path("out", shard.file).rename(Path("out", shard.waiting))
    assert read_done("out", shard, newest.digest) == done
    Path("out", shard.table).unlink()
    assert read_done("out", shard, newest.digest) is None
    assert shard_fault(list_output("out", [shard]), shard, done) == f"{shard.table} is missing"


def test_the_bytes_of_too_many_rows_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("again.jpg").write_bytes(PHOTOS[3].read_bytes())
    uris = [str(PHOTOS[3]), "again.jpg"]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "x"})
    few = tfrecorder.convert(frame, "few", **QUIET).copies
    assert few is not None
    assert few.exact == 1
    monkeypatch.setattr(merged_rows, "MOST_COMPARED", 1)
    words = "copies: not counted; `tfrecorder duplicates out` compares pictures"
    assert words in str(tfrecorder.convert(frame, "out", **QUIET))
    assert words in str(tfrecorder.info("out"))
