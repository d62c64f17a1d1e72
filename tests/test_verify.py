"""`verify`: a clean dataset is clean, and whatever is done to one is found and named."""

from __future__ import annotations

import json
import re
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damage import SHARD, agree, all_files, flip, forge, framed, make_dataset, restore
from hypothesis import given, settings
from hypothesis import strategies as st
from support import PHOTOS, photo_frame
from test_walls import BEAM, TENSORFLOW, attempts_of

import tfrecorder
from tfrecorder.errors import DatasetError
from tfrecorder.plan.staging import read_shard_rows
from tfrecorder.verification import faults as fault_codes
from tfrecorder.verification.expectation import read_expectation
from tfrecorder.verification.faults import FAULT_COLUMNS, Fault, VerificationReport, at_most
from tfrecorder.verification.shard import check_shard
from tfrecorder.verification.verify import verify
from tfrecorder.writing.tfds import json_bytes

INDEX = f"_tfrecorder/index/{SHARD}.idx"
DONE = "_tfrecorder/done/train-00000-of-00003.json"
METADATA = "_tfrecorder/metadata.json"
PLAN = "_tfrecorder/plan.json"
PARQUET = "_tfrecorder/plan.parquet"


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
    assert report.records == json.loads(files["_tfrecorder/metadata.json"])["totals"]["records"]
    shards = [data for name, data in files.items() if name.endswith(".tfrecord")]
    assert report.bytes == sum(map(len, shards))
    assert "all is well" in str(report)
    assert "all is well" in report._repr_html_()
    assert list(report.faults.columns) == list(FAULT_COLUMNS)
    assert report.faults.empty


def test_nothing_is_changed(clean: Path, files: dict[str, bytes]) -> None:
    verify(clean)
    assert all_files(clean) == files


@pytest.mark.parametrize(
    "options",
    [{"labels": None}, {"verify": "none"}, {"shuffle": False}, {"num_shards": 1}],
    ids=str,
)
def test_datasets_of_other_kinds_are_clean(frame: pd.DataFrame, options: dict) -> None:
    frame = frame.iloc[:12].assign(label=np.arange(12))
    if "labels" in options:
        frame = frame.drop(columns="label")
    Path("junk.jpg").write_bytes(b"\xff\xd8\xff junk")
    if "verify" in options:
        frame.loc[0, "image_uri"] = "junk.jpg"
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


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(where=st.floats(0, 1, exclude_max=True), at=st.floats(0, 1), by=st.integers(1, 255))
def test_a_byte_that_flips_in_any_file_is_found_and_named(clean, bench, files, where, at, by):
    name = list(files)[int(where * len(files))]
    place = min(int(at * len(files[name])), len(files[name]) - 1)
    (bench / name).write_bytes(flip(files[name], place, by))
    try:
        report = verify(bench)
        # What only the sources show cannot be told from its sum in the commit's list.
        either = {name, METADATA} if "/done/" in name else {name}
        assert named(report) & either
        if name.endswith(".tfrecord"):
            own = [fault for fault in report.found if fault.file == name]
            met = {(fault.record, fault.offset) for fault in own if fault.record is not None}
            record = next(n for n, (o, s) in enumerate(places(clean, name)) if o <= place < o + s)
            assert met == {(record, places(clean, name)[record][0])}
            assert codes(report, name) - {"record_length", "record_checksum"} == {"checksum"}
    finally:
        restore(bench, files)


@pytest.mark.parametrize("name", [PLAN, PARQUET])
def test_no_byte_of_the_plan_flips_unseen(bench, files, name: str) -> None:
    data = files[name]
    for at in {*range(0, len(data), len(data) // 40), len(data) - 1}:
        (bench / name).write_bytes(flip(data, at, 1 + at % 255))
        report = verify(bench)
        assert name in named(report), at
        assert METADATA not in named(report), at
    restore(bench, files)


def test_where_the_list_of_the_plan_is_damaged_the_plan_is_not_blamed(bench, files) -> None:
    data = files[METADATA]
    start, end = data.index(b'"plan_files"'), data.index(b'"options"')
    for at in range(start, end, 3):
        (bench / METADATA).write_bytes(flip(data, at, 1 + at % 255))
        assert named(verify(bench)) == {METADATA}, data[at - 20 : at + 1]
        restore(bench, files)


def test_a_dataset_whose_version_listed_no_plan_is_clean(out: Path) -> None:
    known = json.loads((out / METADATA).read_bytes())
    del known["plan_files"], known["plan_files_crc32c"]
    (out / METADATA).write_bytes(json_bytes(known))
    assert verify(out).ok


@pytest.mark.parametrize("harm", ["gone", "cut", "longer", "empty"])
def test_a_file_that_is_gone_cut_or_longer_is_found_and_named(bench, files, harm) -> None:
    for name, data in files.items():
        if name == "dataset_info.json" and harm == "gone":
            continue  # then it is no committed dataset
        (bench / name).unlink()
        if harm != "gone":
            changed = {"cut": data[:-1], "longer": data + b"\n", "empty": b""}[harm]
            (bench / name).write_bytes(changed)
        report = verify(bench)
        assert name in named(report), name
        expected = {"missing"} if harm == "gone" else {"size", "damaged", "differs"}
        assert codes(report, name) & expected, name
        restore(bench, files)


def test_every_fault_has_a_code_that_is_explained(bench, files) -> None:
    met = set()
    for name, data in files.items():
        (bench / name).write_bytes(flip(data, len(data) // 2, 255))
        met |= codes(verify(bench))
        restore(bench, files)
    assert {"checksum", "damaged", "differs", "record_checksum"} <= met
    explained = set(re.findall(r"^    (\w+)(?:, (\w+))?  ", fault_codes.__doc__, re.MULTILINE))
    assert met <= {code for pair in explained for code in pair}


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

    from tfrecorder.dataset.tfrecord import _HEADER, _LENGTH, masked_crc

    size = 2**31 - 1
    crc = masked_crc(google_crc32c.value(_LENGTH.pack(size)))
    data = (out / SHARD).read_bytes()
    (out / SHARD).write_bytes(_HEADER.pack(size, crc) + data[12:])
    tracemalloc.start()
    report = verify(out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    first = next(fault for fault in report.found if fault.record is not None)
    assert (first.code, first.record, first.offset) == ("record_length", 0, 0)
    assert "the file ends inside the data of 2,147,483,647 bytes" in first.message


def test_exchanged_shards_are_found(out: Path) -> None:
    other = "train-00001-of-00003.tfrecord"
    one, two = (out / SHARD).read_bytes(), (out / other).read_bytes()
    (out / SHARD).write_bytes(two)
    (out / other).write_bytes(one)
    report = verify(out)
    assert named(report) == {SHARD, other}
    assert {"row", "rows_lost"} <= codes(report, SHARD) & codes(report, other)


def write_records(out: Path, records: list[bytes]) -> None:
    """Records to a shard, which says so everywhere but in its plan."""
    (out / SHARD).write_bytes(b"".join(records))


@pytest.mark.parametrize("told", [False, True], ids=["by whoever copied", "by a wrong writer"])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda records: [*records, records[0]], "duplicate_row"),
        (lambda records: [records[0], *records], "duplicate_row"),
        (lambda records: records[:-1], "rows_lost"),
        (lambda records: [records[1], records[0], *records[2:]], "row"),
    ],
    ids=["last again", "first again", "one gone", "two exchanged"],
)
def test_records_that_are_twice_gone_or_exchanged_are_found(out, change, code, told) -> None:
    records = change(framed(out / SHARD))
    write_records(out, records)
    if told:
        agree(out, SHARD, [len(record) for record in records])
    assert code in codes(verify(out), SHARD)


def test_a_shard_that_is_not_of_the_dataset_is_found(out: Path) -> None:
    shutil.copy(out / SHARD, out / "train-00007-of-00009.tfrecord")
    shutil.copy(out / SHARD, out / "copy.tfrecord")
    (out / ".DS_Store").touch()
    report = verify(out)
    assert named(report) == {"train-00007-of-00009.tfrecord", "copy.tfrecord"}
    assert codes(report) == {"foreign_shard"}


# ----------------------------------------------- what is wrong although all checksums are right


@pytest.mark.parametrize(
    ("key", "value", "code", "words"),
    [
        ("image/height", 7, "shape", "height x width x channels are 7 x "),
        ("image/channels", 4, "shape", " x 4, but the image's are "),
        ("image/format", "png", "format", "the image is no readable png"),
        ("image/format", "webp", "format", "'webp', neither 'jpeg' nor 'png'"),
        ("image/encoded", b"nothing", "format", "the image is no readable"),
        ("image/class/label", 99, "label", "label 99 is none of the"),
        ("image/class/label", -1, "label", "label -1 is none of the"),
        ("image/class/text", "cow", "label", "but the text is 'cow'"),
        ("image/height", "7", "type", "image/height is not an int64 list"),
        ("image/height", [7, 7], "type", "image/height has 2 values, not one"),
        ("image/class/text", 1, "type", "image/class/text is not a bytes list"),
        ("image/class/text", b"\xff", "type", "image/class/text is no UTF-8"),
        ("image/source_id", "x", "type", "image/source_id is 'x', which is no row number"),
        ("image/depth", 1, "keys", "keys not known: image/depth"),
        ("image/height", None, "keys", "keys missing: image/height"),
    ],
)
def test_a_record_of_a_wrong_writer_is_found(out: Path, key, value, code: str, words: str) -> None:
    def change(examples):
        examples[3][key] = value
        if value is None:
            del examples[3][key]

    forge(out, change)
    found = [f for f in verify(out).found if f.file == SHARD and f.record is not None]
    assert [(f.code, f.record, f.offset) for f in found] == [(code, 3, places(out)[3][0])]
    assert words in found[0].message


def test_bytes_that_are_no_example_are_found(out: Path) -> None:
    from tfrecorder.dataset.tfrecord import frame

    records = framed(out / SHARD)
    records[1] = b"".join(frame([b"\x0a\xff\xff\xff no Example"]))
    write_records(out, records)
    agree(out, SHARD, [len(record) for record in records])
    assert ("not_an_example", 1) in [(f.code, f.record) for f in verify(out).found]


@pytest.mark.parametrize("key", ["image/filename", "image/source_id"])
def test_a_record_that_is_not_of_the_plan_is_found(out: Path, key: str) -> None:
    forge(out, lambda examples: examples[0].update({key: "4711"}))
    faults = [f for f in verify(out).found if f.record == 0]
    assert [fault.code for fault in faults] == ["row"]


def test_labels_in_a_dataset_without_labels_are_found(frame: pd.DataFrame) -> None:
    tfrecorder.convert(frame.iloc[:9].drop(columns="label"), "out", num_shards=1)
    shard = "train-00000-of-00001.tfrecord"
    forge(Path("out"), lambda examples: examples[0].update({"image/class/label": 0}), shard)
    report = verify("out")
    assert "label" in codes(report, shard)


@pytest.mark.parametrize(
    ("name", "value", "file"),
    [
        ("crc32c", 1, DONE),
        ("records", 1, DONE),
        ("bytes", 1, DONE),
        ("formats", {"jpeg": 1}, DONE),
        ("shapes", [[1, 1, 3], [2, 2, 3]], DONE),
        ("sides", [[1, 1], [2, 2]], DONE),
        ("rows", 1, DONE),
        ("suspects", 1000, DONE),
        ("reasons", {"read/not_found": 1000}, DONE),
        ("input_bytes", 1, METADATA),
        ("oriented", 1000, METADATA),
        ("plan", "another", DONE),
        ("shard", "another", DONE),
        ("records", "many", DONE),
        ("unknown", 1, DONE),
    ],
)
def test_a_done_record_that_says_something_else_is_found(out, name, value, file) -> None:
    document = json.loads((out / DONE).read_text())
    text = json.dumps({**document, name: value}, indent=1, sort_keys=True)
    (out / DONE).write_text(text)
    report = verify(out)
    assert file in named(report)
    assert SHARD not in named(report)


@pytest.mark.parametrize("line", [0, 4])
def test_an_index_that_agrees_with_itself_but_not_with_the_shard_is_found(out, line: int) -> None:
    found = [list(map(int, text.split())) for text in (out / INDEX).read_text().splitlines()]
    found[line][1] += 1
    found[line + 1] = [found[line + 1][0] + 1, found[line + 1][1] - 1]
    (out / INDEX).write_text("".join(f"{offset} {size}\n" for offset, size in found))
    report = verify(out)
    assert named(report) == {INDEX}
    assert report.found[0].record == line


def test_an_index_is_checked_also_beside_a_damaged_shard(out: Path) -> None:
    (out / SHARD).write_bytes(flip((out / SHARD).read_bytes(), 100, 1))
    first, second, *rest = (out / INDEX).read_text().splitlines()
    (out / INDEX).write_text("\n".join([second, first, *rest, ""]))
    report = verify(out)
    assert named(report) == {SHARD, INDEX}
    assert "record 0 does not begin where the last one ends" in str(report)


@pytest.mark.parametrize("name", ["rejects", "suspects"])
def test_a_row_of_a_list_that_is_gone_or_foreign_is_found(out: Path, name: str) -> None:
    part = next(
        p for p in sorted(out.glob(f"_tfrecorder/{name}/*")) if p.read_text().count("\n") > 1
    )
    head, row, *rest = part.read_text().splitlines()
    (out / f"{name}.csv").write_text("\n".join([head, *rest, ""]))
    assert f"{name}.csv" in named(verify(out))
    part.write_text("\n".join([head, *rest, ""]))
    assert str(part.relative_to(out)) in named(verify(out))
    part.write_text("\n".join([head, row.replace(row.split(",")[0], "999", 1), *rest, ""]))
    assert str(part.relative_to(out)) in named(verify(out))


def test_a_reject_that_is_also_a_record_is_found(out: Path) -> None:
    part = out / "_tfrecorder/rejects/train-00000-of-00003.csv"
    row = read_shard_rows(out, 0)[0]
    part.write_text(f"{part.read_text()}{row.row},{row.image_uri},read,not_found: gone\n")
    assert "duplicate_row" in codes(verify(out), str(part.relative_to(out)))


def test_a_plan_that_is_not_each_row_once_is_found(out: Path) -> None:
    shards = read_expectation(str(out)).plan.shards
    table = pq.read_table(out / PARQUET)
    # The first row once more, in the place of the last one, which is another shard's.
    rows = pa.concat_tables([table.slice(0, table.num_rows - 1), table.slice(0, 1)])
    with pq.ParquetWriter(out / PARQUET, table.schema) as writer:
        for shard in shards:
            size = read_expectation("out").plan.shard_rows(shard)
            writer.write_table(rows.slice(0, size))
            rows = rows.slice(size)
    assert {"duplicate_row", "rows_lost"} <= codes(verify(out), PARQUET)


def test_where_the_plan_is_gone_the_rest_is_checked_all_the_same(out: Path) -> None:
    (out / "_tfrecorder/plan.json").unlink()
    assert named(verify(out)) == {"_tfrecorder/plan.json"}
    (out / SHARD).write_bytes(flip((out / SHARD).read_bytes(), 100, 1))
    (out / "features.json").write_text("{}")
    assert named(verify(out)) == {"_tfrecorder/plan.json", SHARD, "features.json"}


# -------------------------------------------------------------------------------------- decoding


def test_with_decode_an_image_that_training_could_not_read_is_found() -> None:
    """Images of one size: then the graph knows the shape before it decodes anything."""
    photo = PHOTOS[0].read_bytes()
    for name in "abc":
        Path(f"{name}.jpg").write_bytes(photo)
    Path("b.jpg").write_bytes(photo[: len(photo) // 2])
    table = pd.DataFrame({"image_uri": ["a.jpg", "b.jpg", "c.jpg"], "split": "TRAIN"})
    tfrecorder.convert(table, "cut", verify="header", shuffle=False, num_shards=1)
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
        (lambda: Path("x").mkdir(), "is no dataset: it has no dataset_info.json"),
        (lambda: Path("x").write_text("x"), "there is no such directory"),
    ],
    ids=["nothing", "empty", "file"],
)
def test_what_is_no_dataset_is_one_clear_error(make, words: str) -> None:
    make()
    with pytest.raises(DatasetError, match=words):
        verify("x")


def test_an_uncommitted_directory_is_one_clear_error(out: Path) -> None:
    (out / "dataset_info.json").unlink()
    with pytest.raises(DatasetError, match=r"not committed: .* run the same conversion again"):
        verify(out)


def test_a_directory_of_tfds_is_one_clear_error(out: Path) -> None:
    shutil.rmtree(out / "_tfrecorder")
    with pytest.raises(DatasetError, match=r"out was not written by tfrecorder: .* checksums"):
        verify(out)
    (out / "dataset_info.json").unlink()
    with pytest.raises(DatasetError, match="was not written by tfrecorder"):
        verify(out)


def test_what_cannot_be_reached_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(DatasetError, match="there are no Google Cloud credentials: run `gcloud"):
        verify("gs://bucket/out")
    with pytest.raises(DatasetError, match=r"https://bucket/out cannot be read: put the files"):
        verify("https://bucket/out")


def test_with_nothing_to_check_against_there_is_one_clear_error(out: Path) -> None:
    (out / "_tfrecorder/plan.json").unlink()
    (out / METADATA).write_text("{}")
    with pytest.raises(DatasetError, match=r"both .* damaged or gone"):
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


def test_more_faults_of_one_kind_than_anybody_reads_are_counted() -> None:
    found = list(at_most([Fault("a", "row", str(n)) for n in range(12)], most=10))
    assert [fault.message for fault in found] == [*map(str, range(10)), "and 2 more of this kind"]


def test_a_bar_is_shown_where_it_is_asked_for(clean: Path, capfd) -> None:
    verify(clean)
    assert capfd.readouterr() == ("", "")
    verify(clean, progress=True)
    assert "100%" in capfd.readouterr().err


def test_memory_holds_no_shard() -> None:
    tfrecorder.convert(photo_frame(1200), "out", num_shards=1, verify="header")
    expected = read_expectation("out")
    check_shard(expected, 0)
    tracemalloc.start()
    found = check_shard(expected, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.bytes > 9e6
    assert peak < 3e6


def test_neither_tensorflow_nor_beam_is_loaded(clean: Path) -> None:
    code = f"from tfrecorder.verification.verify import verify; assert verify({str(clean)!r}).ok"
    assert attempts_of(code, (*TENSORFLOW, *BEAM)) == []


def test_decoding_loads_no_beam(clean: Path) -> None:
    code = f"import tfrecorder; assert tfrecorder.verify({str(clean)!r}, True).ok"
    assert attempts_of(code, BEAM) == []
