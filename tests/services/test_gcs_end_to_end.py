"""Whole conversions on gs://, against a loopback server that counts and fails on demand."""

from __future__ import annotations

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
from support import (
    CSV,
    PHOTOS,
    SAMPLES,
    dry_run,
    end_by_ctrl_c,
    error_of,
    press_ctrl_c,
    public_files,
    records,
    run,
    shorten_patience,
    shorten_pauses,
    start,
    stop,
    wait_for,
    written,
)

import tfrecorder
from services.gcs.control import Gcs
from services.gcs.tls_proxy import TlsProxy
from tfrecorder.errors import (
    DatasetError,
    ImagesUnreachableError,
    OptionError,
    OutputError,
    SourceError,
    UnreachableError,
)

pytest_plugins = ["services.gcs.fixtures"]

#: Images that are opened before the launch, and images of which the sizes are asked for.
OPENED_ROWS, SAMPLE_ROWS = 100, 1000
#: Requests that a process makes at the same time.
THREADS = 16

SHARDS = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}  # those of the fixture `dataset`
SOURCE = "gs://bkt/photos.csv"
OUT = "gs://bkt/sets/out"
COMMIT = f"{OUT}/dataset_info.json"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is asked for again at once."""
    shorten_pauses(monkeypatch)


@pytest.fixture
def photos(gcs: Gcs) -> Gcs:
    """A server that holds the bundled photographs with their CSV."""
    gcs.put(SOURCE, CSV.read_bytes())
    gcs.put_folder("gs://bkt/photos", SAMPLES / "photos")
    return gcs


@pytest.fixture
def many(gcs: Gcs) -> pd.DataFrame:
    """A frame of 400 photographs on gs://, each an object of its own."""
    uris = [f"gs://bkt/many/{number}.jpg" for number in range(400)]
    data = [path.read_bytes() for path in PHOTOS]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(gcs.put, uris, (data * 20)[: len(uris)]))
    return pd.DataFrame({"split": "TRAIN", "image_uri": uris})


def test_source_images_and_output_on_gs(photos: Gcs, dataset: Path) -> None:
    result = tfrecorder.convert(SOURCE, OUT, num_shards=SHARDS)
    assert photos.files(OUT) == public_files(dataset), "the local conversion's bytes"
    assert result.output_dir == OUT
    assert result.records == len(PHOTOS)
    assert not result.rejects
    assert result.retries == 0
    left = {name.split("/")[3] for name in photos.names(f"{OUT}/_tfrecorder/")}
    assert not left & {"tmp", "progress", "failure.json", "lock"}


@pytest.mark.slow
def test_a_folder_on_gs(photos: Gcs, tmp_path: Path) -> None:
    photos.put("gs://bkt/photos/.hidden", b"")
    result = tfrecorder.convert("gs://bkt/photos/", OUT)
    assert result.passed_over == {"hidden": 1, "not images": 0}
    tfrecorder.convert(SAMPLES / "photos", tmp_path / "local")
    assert photos.files(OUT) == public_files(tmp_path / "local")


@pytest.mark.slow
def test_sources_and_outputs_mix(photos: Gcs, dataset: Path, tmp_path: Path) -> None:
    tfrecorder.convert(CSV, OUT, num_shards=SHARDS)
    assert photos.files(OUT) == public_files(dataset)
    tfrecorder.convert(SOURCE, tmp_path / "local", num_shards=SHARDS)
    assert public_files(tmp_path / "local") == public_files(dataset)


@pytest.mark.slow
def test_the_command_line(photos: Gcs, dataset: Path) -> None:
    shards = ["--num-shards", ",".join(f"{name}={count}" for name, count in SHARDS.items())]
    done = run("-m", "tfrecorder", "convert", SOURCE, OUT, *shards)
    assert done.returncode == 0, done.stderr
    assert f"{len(PHOTOS)} records in {OUT}" in done.stdout
    assert photos.files(OUT) == public_files(dataset)
    again = run("-m", "tfrecorder", "convert", SOURCE, OUT, *shards)
    assert (again.returncode, again.stderr) == (0, "")
    assert f"{OUT}, which was finished before: nothing was written" in again.stdout


def test_buckets_that_are_not_there(photos: Gcs, tmp_path: Path) -> None:
    where = str(tmp_path / "out")
    csv = "gs://elsewhere/photos.csv"
    assert error_of(SourceError, csv, OUT).startswith(f"{csv} cannot be read: 404 ")
    assert "bucket does not exist" in error_of(OutputError, SOURCE, "gs://elsewhere/out")
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": ["gs://elsewhere/a.jpg"]})
    assert "bucket does not exist" in error_of(ImagesUnreachableError, frame, where)
    assert public_files(where) == {}


@pytest.mark.slow
def test_an_image_that_is_not_there_or_not_permitted_is_a_reject(photos: Gcs) -> None:
    gone, secret = "photos/cat/cat_01.jpg", "photos/cat/cat_02.jpg"
    photos.put(SOURCE, CSV.read_bytes() + f"TRAIN,{gone}x,cat\n".encode())
    photos.inject("status", status=403, object=f"bkt/{secret}")
    result = tfrecorder.convert(SOURCE, OUT)
    assert result.rejects == {"read/no_permission": 1, "read/not_found": 1}
    assert result.retries == 0
    rows = photos.get(f"{OUT}/rejects.csv").decode().splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == [secret, f"{gone}x"]
    assert "No such object" in rows[1]
    # Once before the launch, as one of those that are opened, and once for its shard.
    assert photos.count("download", f"bkt/{secret}") == 2
    photos.mend()
    again = tfrecorder.append(SOURCE, OUT, retry_rejects=True)
    assert again.rejects == {"read/not_found": 1}


@pytest.mark.slow
def test_nothing_is_lost_where_requests_fail_in_passing(gcs: Gcs, many: pd.DataFrame) -> None:
    tfrecorder.convert(many, "gs://bkt/calm", num_shards=5)
    gcs.forget_requests()
    for seed, fault in enumerate(
        [{"kind": "status", "status": 429}, {"kind": "status", "status": 503}]
        + [{"kind": "reset"}, {"kind": "cut"}]
    ):
        gcs.inject(probability=0.05, seed=seed, **fault)
    result = tfrecorder.convert(many, OUT, num_shards=5)
    assert gcs.files(OUT) == gcs.files("gs://bkt/calm")
    assert result.records == len(many)
    assert not result.rejects
    failed = gcs.count("download", "bkt/many/*", "429|503|reset|cut")
    assert failed > 50
    assert failed * 0.5 < result.retries < failed, "but for those before the launch"


@pytest.mark.slow
@pytest.mark.parametrize("status", [403, 503])
@pytest.mark.parametrize(
    ("operation", "object", "kind", "words"),
    [
        ("*", "bkt/photos.csv", SourceError, "photos.csv"),
        ("*", "bkt/photos/*", ImagesUnreachableError, "opened before the launch cannot be read"),
        ("upload|start", "bkt/sets/*", OutputError, "cannot be written"),
        ("upload|start", "bkt/sets/out/*00000*.tfrecord", OutputError, "cannot be written"),
        ("list", "bkt/sets/*", OutputError, "gs://bkt/sets/out cannot be read: "),
        ("*", "bkt/sets/*", OutputError, "gs://bkt/sets/out"),
        ("download", "bkt/sets/*", OutputError, "gs://bkt/sets/out"),
        ("download", "bkt/sets/*.parquet", OutputError, "plan.parquet"),
    ],
    ids=["source", "images", "uploads", "shard", "listing", "output", "plan", "rows"],
)
def test_a_bucket_that_fails_for_good_ends_the_conversion(
    photos: Gcs,
    operation: str,
    object: str,
    kind: type[Exception],
    words: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shorten_patience(monkeypatch)
    photos.inject("status", status=status, operation=operation, object=object)
    message = error_of(UnreachableError if status == 503 else kind, SOURCE, OUT)
    assert words in message or status == 503
    assert ("denied" if status == 403 else "could not be reached for") in message
    assert "http" not in message
    assert len(message.splitlines()) <= (6 if status == 403 else 1)
    assert COMMIT.removeprefix("gs://bkt/") not in photos.names("gs://bkt/sets/")
    if status == 403:
        # Nothing is asked for again; some things twice, to work and to note the failure.
        failed = [asked for asked in photos.requests() if asked[2] == str(status)]
        assert max(count for *_, count in failed) <= 2, failed
    photos.mend()
    assert tfrecorder.convert(SOURCE, OUT).records == len(PHOTOS)


def test_a_bucket_that_is_down_is_not_asked_for_a_thousand_images(
    gcs: Gcs, many: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch)
    gcs.inject("status", status=503, object="bkt/many/*")
    assert "could not be reached" in error_of(ImagesUnreachableError, many, OUT)
    # Each thread asks for one image as long as the patience lasts, and may begin another.
    assert 0 < len(gcs.asked("bkt/many/*")) <= 2 * THREADS
    assert gcs.names("gs://bkt/sets/") == []


@pytest.mark.slow
def test_a_killed_conversion_leaves_whole_objects_and_goes_on(photos: Gcs, dataset: Path) -> None:
    stuck = "train-00001.tfrecord"
    photos.inject("status", status=503, operation="upload", object=f"*{stuck}")
    code = f"import tfrecorder\ntfrecorder.convert({SOURCE!r}, {OUT!r}, num_shards={SHARDS})"
    process = start(code)
    first = "_tfrecorder/done/train-00000.json"
    wait_for(lambda: photos.count("upload", f"*{stuck}", "503") and photos.names(f"{OUT}/{first}"))
    stop(process)
    whole = public_files(dataset)
    left = photos.files(OUT)
    assert stuck not in left
    assert "dataset_info.json" not in left
    assert "train-00000.tfrecord" in left
    assert all(data == whole[name] for name, data in left.items())

    photos.mend()
    result = tfrecorder.convert(SOURCE, OUT, num_shards=SHARDS)
    assert result.records == len(PHOTOS)
    assert photos.files(OUT) == whole
    assert photos.count("upload", "*/train-00000.tfrecord") == 1, "done is done"


@pytest.mark.slow
def test_kills_at_any_moment(photos: Gcs, dataset: Path) -> None:
    code = f"import tfrecorder\ntfrecorder.convert({SOURCE!r}, {OUT!r}, num_shards={SHARDS})"
    # Slow enough to be met in its middle: some 60 requests, a twentieth of a second each.
    photos.inject("stall", seconds=0.05, operation="upload|download|list")
    whole = public_files(dataset)
    for requests in (25, 60, 100):
        photos.forget_requests()
        process = start(code)
        wait_for(lambda most=requests: photos.count() > most)
        stop(process)
        left = photos.files(OUT)
        assert all(data == whole[name] for name, data in left.items())
        assert "dataset_info.json" not in left or left.keys() == whole.keys()
    photos.mend()
    if COMMIT.removeprefix("gs://bkt/") not in photos.names(f"{OUT}/"):
        tfrecorder.convert(SOURCE, OUT, num_shards=SHARDS)
    assert photos.files(OUT) == whole


@pytest.mark.slow
def test_ctrl_c_ends_every_shard_under_way(gcs: Gcs, many: pd.DataFrame, tmp_path: Path) -> None:
    many.to_csv(tmp_path / "many.csv", index=False)
    code = (
        "import time, tfrecorder\n"
        f"try:\n    tfrecorder.convert({str(tmp_path / 'many.csv')!r}, {OUT!r}, num_shards=2)\n"
        "except KeyboardInterrupt as error:\n"
        "    print(error, flush=True); time.sleep(60)"
    )
    gcs.inject("stall", seconds=0.3, operation="download", object="bkt/many/*")  # 8 s for all
    process = start(code)
    wait_for(lambda: gcs.count("download", "bkt/many/*") > OPENED_ROWS + 20)
    press_ctrl_c(process)
    assert process.stdout is not None
    assert "Run the same conversion again to continue" in process.stdout.readline()
    asked = gcs.count()
    time.sleep(0.5)
    assert gcs.count() == asked, "a notebook lives on, but the conversion does not"
    stop(process)
    assert gcs.files(OUT) == {}

    gcs.mend()
    tfrecorder.convert(tmp_path / "many.csv", OUT, num_shards=2)
    tfrecorder.convert(many, tmp_path / "local", num_shards=2)
    assert gcs.files(OUT) == public_files(tmp_path / "local")


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_an_upload_that_stalls(photos: Gcs) -> None:
    code = f"import tfrecorder\ntfrecorder.convert({SOURCE!r}, {OUT!r}, num_shards={SHARDS})"
    photos.inject("stall", seconds=20, operation="upload", object="*.tfrecord")
    process = start(code)
    wait_for(lambda: photos.peak() and photos.count("upload", "*.tfrecord", "under way"))
    words = end_by_ctrl_c(process, seconds=6)
    assert "Run the same conversion again to continue" in words.splitlines()[-1]


@pytest.mark.slow
def test_two_conversions_of_one_plan_at_once_do_no_harm(photos: Gcs, dataset: Path) -> None:
    code = f"import tfrecorder\ntfrecorder.convert({SOURCE!r}, {OUT!r}, num_shards={SHARDS})"
    photos.inject("stall", seconds=0.02)
    both = [start(code) for _ in range(2)]
    errors = [process.communicate(timeout=100)[1] for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes[0] == 0, errors
    assert photos.files(OUT) == public_files(dataset)
    assert tfrecorder.verify(OUT).ok


@pytest.mark.slow
def test_another_plan_is_refused(photos: Gcs) -> None:
    photos.inject("status", status=403, operation="upload", object="*test-*.tfrecord")
    error_of(OutputError, SOURCE, OUT)
    photos.mend()
    assert "another kind: `seed`" in error_of(OutputError, SOURCE, OUT, seed=7)
    tfrecorder.convert(SOURCE, OUT)
    before = photos.files(OUT)
    assert "finished dataset" in error_of(OutputError, SOURCE, OUT, seed=7)
    assert photos.files(OUT) == before
    tfrecorder.convert(SOURCE, OUT, seed=7, num_shards=1, overwrite=True)
    assert "train-r2-00000.tfrecord" in photos.files(OUT)
    assert "train-00000.tfrecord" not in photos.files(OUT)
    assert tfrecorder.verify(OUT).ok


def test_a_folder_with_anything_foreign_is_refused(photos: Gcs) -> None:
    photos.put(f"{OUT}/thesis.txt", b"")
    for overwrite in (False, True):
        assert "'thesis.txt'" in error_of(OutputError, SOURCE, OUT, overwrite=overwrite)
    assert photos.names(f"{OUT}/") == ["sets/out/thesis.txt"]


@pytest.mark.slow
def test_what_a_conversion_asks_of_a_bucket(gcs: Gcs) -> None:
    rows = 1200
    data = (SAMPLES / "photos" / "brick" / "brick_01.jpg").read_bytes()
    uris = [f"gs://bkt/many/{number}.jpg" for number in range(rows)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda uri: gcs.put(uri, data), uris))
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris})
    result = tfrecorder.convert(frame, OUT)
    images = "bkt/many/*"
    assert gcs.count("metadata", images) <= SAMPLE_ROWS
    # One request an image, but for those that are opened before the launch.
    assert gcs.count("download", images) == rows + OPENED_ROWS
    assert gcs.count("*", images) <= rows + OPENED_ROWS + SAMPLE_ROWS
    # Notes of progress go up every few seconds, however long it takes.
    own = ("/many/", "/_tfrecorder/progress/")
    others = [one for one in gcs.requests() if not any(name in one[1] for name in own)]
    # The client looks at the bucket itself, in the background, after an answer of 404.
    count = sum(count for operation, *_, count in others if operation != "bucket")
    # Each look reads every done-record with one request.
    assert count < 40 + 11 * result.splits["TRAIN"].shards, others


def test_bucket_rights_are_not_needed(photos: Gcs) -> None:
    # The role Storage Object Admin cannot look at the bucket itself.
    photos.inject("status", status=403, operation="bucket")
    assert tfrecorder.convert(SOURCE, OUT).records == len(PHOTOS)


@pytest.mark.slow
def test_verify_compares_checksums_without_a_download(photos: Gcs) -> None:
    tfrecorder.convert(SOURCE, OUT, num_shards=SHARDS)
    photos.forget_requests()
    report = tfrecorder.verify(OUT)
    assert report.ok, report
    assert report.records == len(PHOTOS)
    assert photos.count("download", "*.tfrecord") == 0

    shard = f"{OUT}/train-00001.tfrecord"
    data = photos.get(shard)
    photos.put(shard, data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    report = tfrecorder.verify(OUT)
    assert not report.ok
    assert set(report.faults.file) == {"train-00001.tfrecord"}
    assert photos.count("download", "*.tfrecord") == 1, "only the damaged one is read"

    tfrecorder.repair(OUT)
    assert photos.get(shard) == data
    assert tfrecorder.verify(OUT).ok


def with_rejects(gcs: Gcs, shards: int) -> str:
    """A dataset with as many rejects as shards."""
    csv, out = f"gs://bkt/{shards}.csv", f"gs://bkt/sets/{shards}"
    rows = "".join(f"TRAIN,gone/{number}.jpg,cat\n" for number in range(shards))
    gcs.put(csv, CSV.read_bytes() + rows.encode())
    options = {"num_shards": {"TRAIN": shards}, "shuffle": False, "max_reject_fraction": 0.5}
    tfrecorder.convert(csv, out, **options)
    return out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_verify_asks_nothing_of_each_shard(photos: Gcs) -> None:
    asked = {}
    for shards in (2, 24):
        out = with_rejects(photos, shards)
        photos.forget_requests()
        report = tfrecorder.verify(out, progress=True)
        assert report.ok, report
        assert report.files > 3 * shards
        asked[shards] = sorted(
            (what, how.replace(out[5:], "")) for what, how, *_ in photos.requests()
        )
    assert asked[24] == asked[2]
    assert len(asked[24]) < 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_look_of_a_resume_asks_only_for_the_done_record_of_each_shard(photos: Gcs) -> None:
    asked = {}
    for shards in (2, 24):
        out = f"{with_rejects(photos, shards)}-begun"
        options = {"num_shards": {"TRAIN": shards}, "shuffle": False, "max_reject_fraction": 0.5}
        options.pop("max_reject_fraction")
        written(f"gs://bkt/{shards}.csv", out, **options)
        photos.forget_requests()
        assert dry_run(f"gs://bkt/{shards}.csv", out, **options)["pending_shards"] is not None
        asked[shards] = photos.count(object=f"{out[5:]}*")
    assert asked[24] <= 24 + 16


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_commit_reads_the_lists_of_the_shards_once(photos: Gcs) -> None:
    rows = [f"TRAIN,{one},cat\n" for at in range(48) for one in (PHOTOS[at], f"gone/{at}.jpg")]
    photos.put("gs://bkt/half.csv", f"split,image_uri,label\n{''.join(rows)}".encode())
    options = {"shuffle": False, "max_reject_fraction": 0.5, "num_shards": 24}
    photos.forget_requests()
    tfrecorder.convert("gs://bkt/half.csv", OUT, **options)
    assert photos.count("download", "*/tables/*") <= 2 * 24, "in two ranges"
    assert photos.get(f"{OUT}/rejects.csv").count(b"\n") == 1 + 48


@pytest.mark.slow
def test_verify_names_any_file_that_was_changed(photos: Gcs) -> None:
    """The same as on a disk: tests/verification/test_verify.py."""
    tfrecorder.convert(SOURCE, OUT, num_shards=SHARDS)
    names = [name.removeprefix("sets/out/") for name in photos.names(f"{OUT}/")]
    changed = [name for name in names if "train-00000" in name or "train-" not in name]
    assert len(changed) > 5 + 7
    for name in changed:
        data = photos.get(f"{OUT}/{name}")
        middle = len(data) // 2
        photos.put(f"{OUT}/{name}", data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        assert set(tfrecorder.verify(OUT).faults.file) == {name}
        photos.put(f"{OUT}/{name}", data)
    index = "_tfrecorder/index/train-0000{}.tfrecord.idx"
    one, other = (photos.get(f"{OUT}/{index.format(number)}") for number in (0, 1))
    photos.put(f"{OUT}/{index.format(0)}", other)
    photos.put(f"{OUT}/{index.format(1)}", one)
    assert set(tfrecorder.verify(OUT).faults.file) == {index.format(0), index.format(1)}


def test_verify_of_what_is_not_there(photos: Gcs) -> None:
    where = {"gs://bkt/none": "no such", "gs://elsewhere/out": "bucket does not exist"}
    for act in (tfrecorder.verify, tfrecorder.repair, tfrecorder.info):
        for uri, words in where.items():
            with pytest.raises(DatasetError, match=words):
                act(uri)


@pytest.mark.slow
@pytest.mark.parametrize("status", [403, 503])
@pytest.mark.parametrize("operation", ["*", "list", "download", "metadata"])
def test_looking_at_a_dataset_on_a_bucket_that_fails(
    photos: Gcs, operation: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch)
    tfrecorder.convert(SOURCE, OUT, num_shards=1)
    photos.inject("status", status=status, operation=operation, object="bkt/sets/*")
    acts = [tfrecorder.verify, tfrecorder.repair, tfrecorder.info]
    # `info` lists and downloads, and needs nothing else of an object.
    for act in acts[:2] if operation == "metadata" else acts:
        with pytest.raises(DatasetError if status == 403 else UnreachableError) as caught:
            act(OUT)
        message = str(caught.value)
        assert ("denied" if status == 403 else "could not be reached") in message
        assert message.count("cannot be read") == (status == 403), message


READ_BY_TENSORFLOW = """
import hashlib, json, sys
import tfrecorder

(out,) = sys.argv[1:]
found = {
    name: sorted([hashlib.md5(data.numpy()).hexdigest(), int(label)] for data, label in split)
    for name, split in tfrecorder.load(out, decode=False).items()
}
images, labels = next(iter(tfrecorder.load(out, "TRAIN", batch_size=8, image_size=(32, 32))))
print(json.dumps([found, [*images.shape], str(tfrecorder.info(out)), tfrecorder.verify(out).ok]))
assert "apache_beam" not in sys.modules
"""


@pytest.mark.slow
def test_tensorflow_reads_what_was_written(photos: Gcs, dataset: Path, tls: TlsProxy) -> None:
    tfrecorder.convert(SOURCE, OUT, num_shards=SHARDS)
    photos.forget_requests()
    # To google-cloud-storage the server by its address, to TensorFlow the whole of googleapis.com.
    done = run("-c", READ_BY_TENSORFLOW, OUT, env={**os.environ, **tls.environment()})
    assert done.returncode == 0, done.stderr
    found, shape, info, sound = json.loads(done.stdout)
    for split in SHARDS:
        expected = [
            [hashlib.md5(record["image/encoded"]).hexdigest(), record["image/class/label"]]
            for record in records(dataset, split)
        ]
        assert found[split] == sorted(expected)
    assert shape == [8, 32, 32, 3]
    assert info == str(tfrecorder.info(dataset)).replace(str(dataset), OUT)
    assert sound
    assert photos.count("download", "bkt/sets/out/*.tfrecord", "206") >= 6, "TensorFlow's own"


OPEN_BY_TENSORFLOW = "import sys, tfrecorder; print(len(tfrecorder.load(sys.argv[1], 'TRAIN')))"


@pytest.mark.slow
def test_load_lists_shards_and_does_not_ask_for_each(photos: Gcs, tls: TlsProxy) -> None:
    tfrecorder.convert(SOURCE, OUT, num_shards={"TRAIN": 20})
    photos.forget_requests()
    done = run("-c", OPEN_BY_TENSORFLOW, OUT, env={**os.environ, **tls.environment()})
    assert done.returncode == 0, done.stderr
    assert 0 < photos.count() < 10, photos.requests()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_scheme_without_its_slashes_is_no_folder(gcs: Gcs) -> None:
    """As `Path("gs://…")` writes it, which makes one slash of two."""
    start = "gs:/bkt"
    here = sorted(os.listdir())
    for number in range(6):
        gcs.put(f"gs://bkt/in/a/{number}.jpg", PHOTOS[number].read_bytes())
    uris = [Path(f"{start}/in/a/{number}.jpg") for number in range(4)]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "a"})
    out = Path(f"{start}/out")
    quiet = {"progress": False}
    assert tfrecorder.convert(frame, out, **quiet).output_dir == "gs://bkt/out"
    assert len(tfrecorder.validate(frame.astype(str), **quiet).errors) == 0
    below = pd.DataFrame({"split": "TRAIN", "image_uri": ["a/4.jpg"], "label": "a"})
    tfrecorder.append(below, out, base=Path(f"{start}/in"), **quiet)
    tfrecorder.compact(out, Path(f"{start}/copy"), **quiet)
    assert tfrecorder.convert(Path(f"{start}/in"), Path(f"{start}/of a folder")).records == 6
    wanted = [f"gs://bkt/in/a/{number}.jpg" for number in range(4)]
    assert sorted(tfrecorder.to_frame(out)["image_uri"]) == ["a/4.jpg", *wanted]
    assert tfrecorder.status(out).rows == tfrecorder.info(out).records == 5
    assert tfrecorder.verify(out, sources=True, **quiet).ok
    assert len(tfrecorder.Records(out, "TRAIN")) == 5
    assert len([*tfrecorder.batches(out, "TRAIN", batch_size=5, image_size=8)]) == 1
    tfrecorder.undo(out)
    for call in (
        lambda: tfrecorder.inspect(out, "TRAIN", 1, output_dir=Path(f"{start}/look")),
        lambda: tfrecorder.preview(out, html=Path(f"{start}/look.html")),
        lambda: tfrecorder.batches(out, "TRAIN", batch_size=1, local_cache=Path(f"{start}/kept")),
    ):
        with pytest.raises(OptionError, match=r"a local path|on a local disk"):
            call()
    assert sorted(os.listdir()) == here
    with pytest.raises(OptionError, match="it is a path of Windows"):
        tfrecorder.convert(frame, "C:\\out")
