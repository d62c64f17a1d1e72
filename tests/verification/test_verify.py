"""`verify`: a clean dataset is clean, and whatever is done to one is found and named."""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.damage import (
    MANIFEST,
    SHARD,
    TABLE,
    all_files,
    edit_done,
    flip,
    forge,
    framed,
    make_dataset,
    reseal,
    restore,
)
from helpers.public_types import VerificationReport
from helpers.wall_cases import BEAM, TENSORFLOW, attempts_of
from hypothesis import given, settings, strategies as st
from support import PHOTOS, copied_as_tfds, photo_frame

import tfrecorder
from tfrecorder import verify
from tfrecorder.errors import DatasetError

INDEX = f"_tfrecorder/index/{SHARD}.idx"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def files(clean: Path) -> dict[str, bytes]:
    return all_files(clean)


@pytest.fixture(scope="module")
def bench(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to be harmed and restored many times."""
    return Path(shutil.copytree(clean, tmp_path_factory.mktemp("bench") / "out"))


@pytest.fixture
def out(clean: Path) -> Path:
    """A copy to be harmed once."""
    return Path(shutil.copytree(clean, "out"))


def codes(report: VerificationReport, file: str | None = None) -> set[str]:
    return {fault.code for fault in report.found if file is None or fault.file == file}


def named(report: VerificationReport) -> set[str]:
    return {fault.file for fault in report.found}


def places(out: Path, shard: str = SHARD) -> list[tuple[int, int]]:
    lines = (out / f"_tfrecorder/index/{shard}.idx").read_text().splitlines()
    return [(int(offset), int(size)) for offset, size in map(str.split, lines)]


# --------------------------------------------------------------------------------- all is well


def test_a_clean_dataset_is_clean(clean: Path, files: dict[str, bytes]) -> None:
    report = verify(clean)
    assert report.ok, str(report)
    assert report.files == len(files)
    assert report.records == json.loads(files[MANIFEST])["totals"]["records"]
    shards = [data for name, data in files.items() if name.endswith(".tfrecord")]
    assert report.bytes == sum(map(len, shards))
    assert "all is well" in str(report)
    assert "all is well" in report._repr_html_()
    assert list(report.faults.columns) == ["file", "record", "offset", "code", "message"]
    assert report.faults.empty


def test_nothing_is_changed(clean: Path, files: dict[str, bytes]) -> None:
    verify(clean)
    assert all_files(clean) == files


@pytest.mark.parametrize(
    "options",
    [{}, {"check": "header"}, {"shuffle": False}, {"num_shards": 1}],
    ids=str,
)
def test_datasets_of_other_kinds_are_clean(frame: pd.DataFrame, options: dict) -> None:
    frame = frame.iloc[:12].assign(label=np.arange(12))
    if not options:  # and no labels either
        frame = frame.drop(columns="label")
    tfrecorder.convert(frame, "other", **options)
    assert verify("other").ok


def test_as_many_rejects_of_one_reason_as_of_another_are_clean() -> None:
    for name, data in {"b.jpg": b"no image", "c.jpg": PHOTOS[0].read_bytes()[:900]}.items():
        Path(name).write_bytes(data)
    frame = photo_frame(12)
    frame.loc[[1, 2, 3], "image_uri"] = ["gone.jpg", "c.jpg", "b.jpg"]
    tfrecorder.convert(frame, "odd", max_reject_fraction=0.5, num_shards=1, shuffle=False)
    assert verify("odd").ok


def test_odd_names_and_labels_are_clean() -> None:
    odd = ["a,b.jpg", 'q"q.jpg', "new\nline.jpg", "rose ü.jpg", "none, 1.jpg"]
    for name in odd[:-1]:
        Path(name).write_bytes(PHOTOS[0].read_bytes())
    table = pd.DataFrame(
        {"split": "TRAIN", "image_uri": odd, "label": ["a", " b", "c\n", "ü", "a"]}
    )
    with pytest.warns(UserWarning, match="class names"):
        tfrecorder.convert(table, "odd", max_reject_fraction=0.5)
    assert verify("odd").ok


# -------------------------------------------------------------------------------- bytes that flip


@pytest.mark.slow
@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(where=st.floats(0, 1, exclude_max=True), at=st.floats(0, 1), by=st.integers(1, 255))
def test_a_byte_that_flips_in_any_file_is_found_and_named(clean, bench, files, where, at, by):
    name = list(files)[int(where * len(files))]
    place = min(int(at * len(files[name])), len(files[name]) - 1)
    (bench / name).write_bytes(flip(files[name], place, by))
    try:
        report = verify(bench)
        assert named(report) == {name}
        if name.endswith(".tfrecord"):
            met = {
                (fault.record, fault.offset) for fault in report.found if fault.record is not None
            }
            record = next(n for n, (o, s) in enumerate(places(clean, name)) if o <= place < o + s)
            assert met == {(record, places(clean, name)[record][0])}
            assert codes(report, name) - {"record_length", "record_checksum"} == {"checksum"}
    finally:
        restore(bench, files)


@pytest.mark.parametrize("harm", ["gone", "cut", "longer", "empty"])
def test_a_file_that_is_gone_cut_or_longer_is_found_and_named(bench, files, harm) -> None:
    for name, data in files.items():
        (bench / name).unlink()
        if harm != "gone":
            changed = {"cut": data[:-1], "longer": data + b"\n", "empty": b""}[harm]
            (bench / name).write_bytes(changed)
        report = verify(bench)
        assert named(report) == {name}
        expected = {"size", "checksum", "damaged", "differs"}
        assert codes(report, name) & ({"missing"} if harm == "gone" else expected), name
        restore(bench, files)


def test_every_fault_has_a_code_that_is_explained(bench, files) -> None:
    met = set()
    for name, data in files.items():
        (bench / name).write_bytes(flip(data, len(data) // 2, 255))
        met |= codes(verify(bench))
        restore(bench, files)
    assert {"checksum", "damaged", "differs", "record_checksum"} <= met
    explained = sys.modules[VerificationReport.__module__].__doc__ or ""
    assert met <= set(re.findall(r"^    (\w+)  ", explained, re.MULTILINE))


# ------------------------------------------------------------------------------ damaged shards


def test_after_a_damaged_length_the_walk_goes_on_at_the_next_record(clean, out: Path) -> None:
    offset, _ = places(out)[2]
    data = (out / SHARD).read_bytes()
    (out / SHARD).write_bytes(flip(data, offset + 3, 64))
    report = verify(out)
    assert [(f.code, f.record, f.offset) for f in report.found if f.record is not None] == [
        ("record_length", 2, offset)
    ]
    assert report.records == verify(clean).records


def test_two_damaged_records_in_one_shard_are_both_named(out: Path) -> None:
    data = (out / SHARD).read_bytes()
    (first, _), (last, size) = places(out)[1], places(out)[-1]
    data = flip(flip(data, first + 2, 8), last + size - 1, 1)
    (out / SHARD).write_bytes(data)
    met = [(f.code, f.record) for f in verify(out).found if f.record is not None]
    assert met == [("record_length", 1), ("record_checksum", len(places(out)) - 1)]


def test_a_huge_length_takes_no_memory(out: Path) -> None:
    import google_crc32c

    length = struct.pack("<Q", 2**31 - 1)
    crc = google_crc32c.value(length)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    data = (out / SHARD).read_bytes()
    (out / SHARD).write_bytes(length + struct.pack("<I", masked) + data[12:])
    tracemalloc.start()
    report = verify(out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    first = next(fault for fault in report.found if fault.record is not None)
    assert (first.code, first.record, first.offset) == ("record_length", 0, 0)
    assert "the file ends inside the data of 2,147,483,647 bytes" in first.message


def test_exchanged_files_are_found(bench, files) -> None:
    others = [(one, one.replace("00000", "00001")) for one in files if "train-00000" in one]
    assert len(others) == 3
    for one, other in others:
        (bench / one).write_bytes(files[other])
        (bench / other).write_bytes(files[one])
        assert named(verify(bench)) == {one, other}
        restore(bench, files)


@pytest.mark.slow
def test_files_of_another_conversion_of_the_same_rows_are_found(clean, bench, files) -> None:
    shards = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}
    source = clean.parent / "images" / "images.csv"
    tfrecorder.convert(source, "other", num_shards=shards, seed=1, progress=False)
    others = all_files(Path("other"))
    assert others.keys() == files.keys()
    changed = [name for name in files if others[name] != files[name]]
    assert len(changed) >= 3 * sum(shards.values()) + 2
    for name in changed:
        (bench / name).write_bytes(others[name])
        report = verify(bench)
        # What names another plan than the manifest's is believed: it is the commit.
        assert named(report) == {MANIFEST if name == "dataset_info.json" else name}
        restore(bench, files)


@pytest.mark.parametrize(
    ("change", "met"),
    [
        (lambda records: [*records, records[0]], -1),
        (lambda records: [records[0], *records], 1),
        (lambda records: records[:-1], None),
        (lambda records: [records[0], *records[2:]], 1),
        (lambda records: [records[1], records[0], *records[2:]], 0),
    ],
    ids=["last again", "first again", "last gone", "one gone", "two exchanged"],
)
def test_whole_records_that_are_twice_gone_or_exchanged_are_found(out, change, met) -> None:
    before, records = places(out), change(framed(out / SHARD))
    (out / SHARD).write_bytes(b"".join(records))
    report = verify(out)
    assert named(report) == {SHARD}
    assert codes(report) & {"size", "checksum"}
    found = [(fault.code, fault.record, fault.offset) for fault in report.found][1:]
    if met is not None:
        number = met % len(records)
        offset = sum(map(len, records[:number]))
        assert found == [("differs", number, offset)]
        assert (offset, len(records[number])) not in before
    else:
        assert found == []


def test_a_shard_that_is_not_of_the_dataset_is_found(out: Path) -> None:
    shutil.copy(out / SHARD, out / "train-00007.tfrecord")
    shutil.copy(out / SHARD, out / "copy.tfrecord")
    (out / ".DS_Store").touch()
    report = verify(out)
    assert named(report) == {"train-00007.tfrecord", "copy.tfrecord"}
    assert codes(report) == {"foreign_shard"}


# ----------------------------------------------------- what is edited, with some of its checksums


def test_a_shard_that_is_edited_with_its_own_checksums_is_found(out: Path) -> None:
    """Records and index agree, and the manifest says so, but not `dataset_info.json`."""
    info = (out / "dataset_info.json").read_bytes()
    forge(out, lambda examples: examples[3].update({"image/class/text": "cow"}))
    (out / "dataset_info.json").write_bytes(info)
    assert "dataset_info.json" in named(verify(out))


def test_a_manifest_that_is_edited_is_found(out: Path) -> None:
    text = (out / MANIFEST).read_text()
    (out / MANIFEST).write_text(text.replace('"decode"', '"header"'))
    assert {(fault.file, fault.code) for fault in verify(out).found} == {(MANIFEST, "damaged")}
    # Nor does its own checksum help: the digest of its plan says otherwise.
    (out / MANIFEST).write_text(text)
    reseal(out / MANIFEST, lambda manifest: manifest["options"].update(check="header"))
    assert {(fault.file, fault.code) for fault in verify(out).found} == {(MANIFEST, "damaged")}


@pytest.mark.parametrize(
    "key", ["splits", "since", "stated", "positions", "contents", "totals", "history"]
)
def test_a_manifest_that_says_of_the_whole_what_its_shards_do_not_is_found(out, key) -> None:
    wrong = {"since": 1, "stated": "1.0.1"}.get(key, {"TRAIN": [1, 3]})
    reseal(out / MANIFEST, lambda manifest: manifest.update({key: wrong}))
    assert codes(verify(out), MANIFEST) & {"differs", "damaged"}


def test_who_edits_a_shard_its_index_and_the_commit_is_found_by_its_table(out: Path) -> None:
    """But CRC32C finds accidents, not forgery: who edits the table too is believed."""
    forge(out, lambda examples: examples[3].update({"image/class/text": "cow"}))
    of_table = [fault for fault in verify(out).found if fault.file.endswith(".parquet")]
    assert [(fault.code, fault.record) for fault in of_table] == [("differs", 3)]
    assert "the table is of other records" in of_table[0].message


def test_a_done_record_that_counts_other_rows_than_were_planned_is_found(out: Path) -> None:
    edit_done(out, lambda done: done.update(rows=done["rows"] - 1, records=done["records"] - 1))
    assert "rows_lost" in codes(verify(out), MANIFEST)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("crc32c", 1),
        ("records", 1),
        ("bytes", 1),
        ("formats", {"jpeg": 1}),
        ("sides", [[1, 1], [2, 2]]),
        ("rows", 1),
        ("suspects", 1000),
        ("reasons", {"read/not_found": 1000}),
        ("input_bytes", 1),
        ("oriented", 1000),
        ("retries", 7),
        ("plan", "another"),
        ("shard", "another"),
        ("unknown", 1),
    ],
)
def test_a_done_record_that_says_something_else_is_found(out, name, value) -> None:
    edit_done(out, lambda done: done.update({name: value}))
    assert MANIFEST in named(verify(out))


@pytest.mark.parametrize("line", [0, 4])
def test_an_index_that_agrees_with_itself_but_not_with_the_shard_is_found(out, line: int) -> None:
    found = [list(map(int, text.split())) for text in (out / INDEX).read_text().splitlines()]
    found[line][1] += 1
    found[line + 1] = [found[line + 1][0] + 1, found[line + 1][1] - 1]
    (out / INDEX).write_text("".join(f"{offset} {size}\n" for offset, size in found))
    assert named(verify(out)) == {INDEX}
    (out / MANIFEST).unlink()
    report = verify(out)
    assert named(report) == {MANIFEST, INDEX}
    of_index = [(fault.code, fault.record) for fault in report.found if fault.file == INDEX]
    assert of_index == [("differs", line)]


def test_an_index_is_checked_also_beside_a_damaged_shard(out: Path) -> None:
    (out / SHARD).write_bytes(flip((out / SHARD).read_bytes(), 100, 1))
    first, second, *rest = (out / INDEX).read_text().splitlines()
    (out / INDEX).write_text("\n".join([second, first, *rest, ""]))
    assert named(verify(out)) == {SHARD, INDEX}
    (out / MANIFEST).unlink()
    report = verify(out)
    assert named(report) == {SHARD, MANIFEST, INDEX}
    assert "according to the index record 0 is at" in str(report)


@pytest.mark.parametrize("name", ["rejects", "suspects"])
def test_a_row_of_a_list_that_is_gone_or_foreign_is_found(out: Path, name: str) -> None:
    head, row, *rest = (out / f"{name}.csv").read_text().splitlines()
    for lines in ([head, *rest, ""], [head, row.replace(row.split(",")[0], "999", 1), *rest, ""]):
        (out / f"{name}.csv").write_text("\n".join(lines))
        assert named(verify(out)) == {f"{name}.csv"}


@pytest.mark.parametrize("column", ["image/filename", "tfrecorder.reject/reason"])
def test_a_table_whose_rows_are_others_is_found(out: Path, column: str) -> None:
    """What decides on no byte of a record: the uri of a reject, or why it is one."""
    path = next(p for p in out.glob("_tfrecorder/tables/*") if "cut.jpg" in cells(p))
    table = pq.read_table(path)
    at = table.column_names.index(column)
    changed = [
        "else" if uri == "cut.jpg" else cell
        for uri, cell in zip(cells(path), table[column].to_pylist(), strict=True)
    ]
    pq.write_table(table.set_column(at, column, pa.array(changed, pa.large_string())), path)
    assert named(verify(out)) == {str(path.relative_to(out))}


def cells(table: Path, column: str = "image/filename") -> list[str]:
    return pq.read_table(table)[column].to_pylist()


def test_where_the_manifest_is_gone_the_rest_is_checked_all_the_same(out: Path) -> None:
    (out / MANIFEST).unlink()
    assert named(verify(out)) == {MANIFEST}
    (out / SHARD).write_bytes(flip((out / SHARD).read_bytes(), 100, 1))
    (out / TABLE).unlink()
    assert named(verify(out)) == {MANIFEST, SHARD, TABLE}


# -------------------------------------------------------------------------------------- decoding


@pytest.mark.slow
def test_with_decode_an_image_that_training_could_not_read_is_found() -> None:
    """Images of one size: then the graph knows the shape before it decodes anything."""
    photo = PHOTOS[0].read_bytes()
    for name in "abc":
        Path(f"{name}.jpg").write_bytes(photo)
    Path("b.jpg").write_bytes(photo[: len(photo) // 2])
    table = pd.DataFrame({"image_uri": ["a.jpg", "b.jpg", "c.jpg"], "split": "TRAIN"})
    tfrecorder.convert(table, "cut", check="header", shuffle=False, num_shards=1)
    assert verify("cut").ok
    report = verify("cut", decode=True)
    assert [(fault.code, fault.record) for fault in report.found] == [("undecodable", 1)]
    assert "TensorFlow" in report.found[0].message
    assert report.decoded


def test_with_decode_a_clean_dataset_is_clean(clean: Path) -> None:
    report = verify(clean, decode=True)
    assert report.ok, str(report)
    assert "every image decoded" in str(report)


# ------------------------------------------------------------------------------ other directories


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: None, "there is no such directory"),
        (lambda: Path("x").mkdir(), "no conversion was started here"),
        (lambda: Path("x").write_text("x"), "x is a file; give the directory"),
    ],
    ids=["nothing", "empty", "file"],
)
def test_what_is_no_dataset_is_one_clear_error(make, words: str) -> None:
    make()
    with pytest.raises(DatasetError, match=words):
        verify("x")


def test_an_uncommitted_directory_is_one_clear_error() -> None:
    Path("none.jpg").write_bytes(b"no image")
    frame = photo_frame(3).assign(image_uri=[str(PHOTOS[0]), "none.jpg", "none.jpg"])
    with pytest.raises(tfrecorder.errors.RejectedError):
        tfrecorder.convert(frame, "out", progress=False)
    with pytest.raises(DatasetError, match=r"not committed: .* run the same conversion again"):
        verify("out")


def test_a_directory_of_tfds_is_one_clear_error(dataset: Path) -> None:
    copied_as_tfds(dataset, "theirs")
    with pytest.raises(DatasetError, match=r"theirs was not written by tfrecorder: .* checksums"):
        verify("theirs")
    Path("theirs/dataset_info.json").unlink()
    with pytest.raises(DatasetError, match="was not written by tfrecorder"):
        verify("theirs")


def test_what_cannot_be_reached_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "nowhere.json")
    with pytest.raises(DatasetError, match=r"gs://bucket/out cannot be read: .*nowhere\.json"):
        verify("gs://bucket/out")
    with pytest.raises(DatasetError, match=r"https://bucket/out cannot be read: .*put the files"):
        verify("https://bucket/out")


def test_with_nothing_to_check_against_there_is_one_clear_error(out: Path) -> None:
    (out / MANIFEST).unlink()
    (out / "dataset_info.json").write_text("{}")
    with pytest.raises(DatasetError, match=rf"{MANIFEST}: .* nothing says what the dataset holds"):
        verify(out)


# ----------------------------------------------------------------------------- report and manner


def test_the_report_names_file_record_and_byte(out: Path) -> None:
    offset, size = places(out)[1]
    (out / SHARD).write_bytes(flip((out / SHARD).read_bytes(), offset + size // 2, 1))
    report = verify(out)
    words = f"record 1 at byte {offset}: record_checksum: the checksum of the data is wrong"
    assert words in str(report)
    assert words in report._repr_html_()
    assert "2 faults in 1 file" in str(report)
    assert "tfrecorder repair out" in str(report)
    row = report.faults.dropna().iloc[0]
    assert row.to_dict() == {
        "file": SHARD,
        "record": 1,
        "offset": offset,
        "code": "record_checksum",
        "message": "the checksum of the data is wrong",
    }


@pytest.fixture
def large() -> Path:
    """1,012 records in one shard."""
    tfrecorder.convert(photo_frame(1012), "out", num_shards=1, check="header", progress=False)
    return Path("out/train-00000.tfrecord")


def test_more_faults_of_one_kind_than_anybody_reads_are_counted(large: Path) -> None:
    data = bytearray(large.read_bytes())
    for offset, size in places(Path("out"), large.name):
        data[offset + size // 2] ^= 1
    large.write_bytes(data)
    found = [fault for fault in verify("out").found if fault.code == "record_checksum"]
    assert [fault.record for fault in found[:1000]] == [*range(1000)]
    assert [fault.message for fault in found[1000:]] == ["and 12 more of this kind"]


def test_a_bar_is_shown_where_it_is_asked_for(clean: Path, capfd) -> None:
    verify(clean)
    assert capfd.readouterr() == ("", "")
    verify(clean, progress=True)
    assert "100%" in capfd.readouterr().err


def test_memory_holds_no_shard(large: Path) -> None:
    verify("out")
    tracemalloc.start()
    assert verify("out").ok
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert large.stat().st_size > 8e6
    assert peak < 3e6


@pytest.mark.slow
def test_neither_tensorflow_nor_beam_is_loaded(clean: Path) -> None:
    code = f"import tfrecorder; assert tfrecorder.verify({str(clean)!r}).ok"
    assert attempts_of(code, (*TENSORFLOW, *BEAM)) == []


@pytest.mark.slow
def test_decoding_loads_no_beam(clean: Path) -> None:
    code = f"import tfrecorder; assert tfrecorder.verify({str(clean)!r}, True).ok"
    assert attempts_of(code, BEAM) == []
