"""What is read from a bucket is kept on the local disk: never a wrong byte, never above the limit.

The inner law: blocks may be small, claims may end soon, and where a block is kept.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import invoke, photo_frame, slow_cases

import tfrecorder
from tfrecorder import Records, batches
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.storage import cache_folder, local_cache
from tfrecorder.storage.cache_folder import CacheFolder

pytest_plugins = ["services.gcs.fixtures", "services.objects.fixtures"]

BLOCK, RECORDS = 2**14, 400
KEPT: dict[str, Any] = {"local_cache": "cache", "inputs": "all", "decode": False}
OUT = "gs://bkt/out"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs in two shards."""
    out = tmp_path_factory.mktemp("kept") / "out"
    tfrecorder.convert(photo_frame(RECORDS), out, num_shards=2, progress=False)
    return out


@pytest.fixture(scope="module")
def local(dataset: Path) -> list[Any]:
    return list(Records(dataset, "TRAIN", inputs="all", decode=False))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cache_folder, local_cache):
        monkeypatch.setattr(module, "BLOCK", BLOCK)


@pytest.fixture
def bucket(gcs: Any, dataset: Path, small_blocks: None) -> Any:
    gcs.put_folder(OUT, dataset)
    gcs.forget_requests()
    return gcs


def asked(bucket: Any) -> int:
    """How often records, or where they are, were asked for."""
    return bucket.count("download", "*/train-*")


def on_disk(folder: str = "cache") -> int:
    """The bytes that the files of a folder take on their disk."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return sum(path.stat().st_blocks * 512 for path in files)


def read_all(records: Records, local: list[Any], seed: int) -> None:
    """Read every record once in a random order, and compare it."""
    for number in random.Random(seed).sample(range(len(local)), len(local)):
        assert records[number] == local[number], number


def together(count: int, work: Callable[[int], None]) -> list[multiprocessing.Process]:
    """Processes that do some work, each with its number; forked, so that they begin at once."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=work, args=(number,)) for number in range(count)]
    for process in processes:
        process.start()
    return processes


# -------------------------------------------------------------------------------------- what it is


def test_what_was_read_once_is_not_asked_for_again(bucket: Any, local: list[Any]) -> None:
    first = Records(OUT, "TRAIN", **KEPT)
    read_all(first, local, seed=1)
    assert asked(bucket) > 0
    bucket.forget_requests()
    again = Records(OUT, "TRAIN", **KEPT)
    read_all(again, local, seed=2)
    assert again[[30, 2, 17, 18, 2]] == [local[number] for number in (30, 2, 17, 18, 2)]
    assert pickle.loads(pickle.dumps(again))[7] == local[7]
    assert asked(bucket) == 0
    assert repr(again) == repr(Records(OUT, "TRAIN", inputs="all", decode=False))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_every_bucket(
    kind: str, request: pytest.FixtureRequest, dataset: Path, local: list[Any]
) -> None:
    server = request.getfixturevalue(kind)
    out = f"{server}/out" if kind == "azure" else "s3://bkt/out"
    tfrecorder.convert(photo_frame(RECORDS), out, num_shards=2, progress=False)
    read_all(Records(out, "TRAIN", **KEPT), local, seed=1)
    reader = Records(out, "TRAIN", **KEPT)
    if kind == "s3":
        server.forget_requests()
    read_all(reader, local, seed=2)
    if kind == "s3":
        assert server.count("GET") == 0


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", ["exact", "blocks", False])
def test_batches_of_a_second_epoch(bucket: Any, dataset: Path, shuffle: Any) -> None:
    options: dict[str, Any] = {"batch_size": 7, "image_size": 20, "seed": 3, "shuffle": shuffle}
    loop = batches(OUT, "TRAIN", local_cache="cache", **options)
    counts = []
    for theirs in [list(batches(dataset, "TRAIN", **options)), None]:
        bucket.forget_requests()
        ours = list(loop)
        counts.append(asked(bucket))
        for one, other in zip(ours, theirs or [], strict=bool(theirs)):
            np.testing.assert_array_equal(one[0], other[0])
    assert counts[0] > 0
    assert counts[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"shuffle": "exact"}], ids=str)
def test_load_reads_every_bucket_with_it(
    s3: Any, dataset: Path, local: list[Any], options: dict[str, Any]
) -> None:
    s3.put_folder("s3://bkt/out", dataset)
    both = {"seed": 5, **options, **KEPT}
    data = tfrecorder.load("s3://bkt/out", "TRAIN", **both)
    assert len(data) == len(local)
    order = [int(one["image/source_id"]) for one in data]
    assert sorted(order) == sorted(int(one["image/source_id"]) for one in local)
    if options.get("shuffle") == "exact":
        theirs = tfrecorder.load(dataset, "TRAIN", **{**both, "local_cache": None})
        assert order == [int(one["image/source_id"]) for one in theirs]
    elif options:
        assert order == [int(one["image/source_id"]) for one in local]
    s3.forget_requests()
    assert len(list(data)) == len(local)
    assert s3.count("GET") == 0


def test_load_says_what_it_cannot_do_with_it() -> None:
    for name, value in {"cache": True, "follow": True}.items():
        with pytest.raises(OptionError, match=f"^{name}="):
            tfrecorder.load("out", "TRAIN", local_cache="cache", **{name: value})


def test_an_outage_does_not_stop_what_is_there(bucket: Any, local: list[Any]) -> None:
    records = Records(OUT, "TRAIN", **KEPT)
    read_all(records, local, seed=1)
    bucket.inject("status", status=503)
    read_all(records, local, seed=2)


def test_a_dataset_on_a_disk_is_read_as_it_is(dataset: Path, local: list[Any]) -> None:
    assert Records(dataset, "TRAIN", **KEPT)[3] == local[3]
    assert not Path("cache").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"local_cache": "gs://bkt/cache"}, "a folder on a local disk"),
        ({"local_cache": True}, "a folder on a local disk"),
        ({"local_cache": "c", "cache_bytes": "much"}, "such as '500GiB'"),
        ({"cache_bytes": "1GiB"}, "no effect without `local_cache`"),
    ],
    ids=str,
)
def test_wrong_values_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Records("out", "TRAIN", **options)


# ------------------------------------------------------------------------------- several processes


@pytest.mark.slow
def test_eight_processes_fetch_each_block_once(
    bucket: Any, dataset: Path, local: list[Any]
) -> None:
    bucket.inject("stall", seconds=0.01)

    def work(number: int) -> None:
        read_all(Records(OUT, "TRAIN", **KEPT), local, seed=number)

    processes = together(8, work)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 8
    size = sum(path.stat().st_size for path in dataset.glob("train-*.tfrecord"))
    assert size <= CacheFolder("cache").counters().kept <= 1.05 * size
    assert bucket.count("download", "*/train-*.tfrecord") <= 1.05 * (size // BLOCK + 2)


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_valid_cache(
    bucket: Any, dataset: Path, local: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_folder, "EXPIRY", 1)
    draw = random.Random(0)

    def work(number: int) -> None:
        while True:
            read_all(Records(OUT, "TRAIN", **KEPT), local, seed=number)
            CacheFolder("cache").clear()

    for _ in range(50):
        processes = together(2, work)
        time.sleep(draw.uniform(0, 0.3))
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
            process.join(60)
            assert process.exitcode == -signal.SIGKILL
        check_kept(dataset)
    begun = time.monotonic()
    read_all(Records(OUT, "TRAIN", **KEPT), local, seed=1)
    assert time.monotonic() - begun < 10
    CacheFolder("cache").clear()
    assert CacheFolder("cache").counters().used == 0


def check_kept(dataset: Path) -> None:
    """Every block that is marked has the bytes of its file, if it is not being removed."""
    files = [path.read_bytes() for path in dataset.glob("train-*.tfrecord")]
    maps = Path("cache").glob("*/*.map")
    for path in (path for path in maps if path.parent.suffix != ".unready"):
        for block in np.flatnonzero(np.fromfile(path, "<u4") == 2**32 - 1).tolist():
            kept = path.with_suffix(".data").read_bytes()[block * BLOCK :][:BLOCK]
            assert kept in [file[block * BLOCK :][:BLOCK] for file in files], (path, block)


def test_a_claim_of_the_dead_ends(
    bucket: Any, local: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_folder, "EXPIRY", 1)
    assert Records(OUT, "TRAIN", **KEPT)[0] == local[0]
    for path in Path("cache").glob("*/*.map"):
        np.full(40, int(time.time()), "<u4").tofile(path)
    begun = time.monotonic()
    assert Records(OUT, "TRAIN", **KEPT)[0] == local[0]
    assert time.monotonic() - begun < 2


# --------------------------------------------------------------------------------------- the limit


@pytest.mark.slow
def test_the_limit_holds_and_what_it_holds_is_hit(
    bucket: Any, dataset: Path, local: list[Any]
) -> None:
    size = sum(path.stat().st_size for path in dataset.glob("train-*.tfrecord"))
    records = Records(OUT, "TRAIN", cache_bytes=size // 3, **KEPT)
    hits = []
    for epoch in range(5):
        before = CacheFolder("cache").counters()
        read_all(records, local, seed=epoch)
        after = CacheFolder("cache").counters()
        assert on_disk() <= size // 3
        hits.append(1 - (after.passed + after.kept - before.passed - before.kept) / size)
        records = pickle.loads(pickle.dumps(records))
    assert min(hits[1:]) >= 0.95 / 3


# ---------------------------------------------------------------------------- what may go wrong


def test_a_damaged_block_is_fetched_again(bucket: Any, local: list[Any]) -> None:
    read_all(Records(OUT, "TRAIN", **KEPT), local, seed=1)
    bucket.forget_requests()
    for path in Path("cache").glob("*/*.data"):
        data = bytearray(path.read_bytes())
        data[BLOCK + 7] ^= 1
        path.write_bytes(data)
    read_all(Records(OUT, "TRAIN", **KEPT), local, seed=2)
    assert asked(bucket) == 2
    read_all(Records(OUT, "TRAIN", **KEPT), local, seed=3)
    assert asked(bucket) == 2


def test_damage_in_the_bucket_is_told(bucket: Any, dataset: Path) -> None:
    name = "train-00001.tfrecord"
    data = bytearray((dataset / name).read_bytes())
    data[50] ^= 1
    bucket.put(f"{OUT}/{name}", bytes(data))
    with pytest.raises(DatasetError, match=rf"{name} is damaged: of the record at byte 0"):
        list(Records(OUT, "TRAIN", **KEPT))


@pytest.mark.parametrize("what", ["file", *slow_cases("emptied", "torn")])
def test_a_folder_in_any_state(bucket: Any, local: list[Any], what: str, caplog: Any) -> None:
    if what == "file":
        Path("cache").write_bytes(b"")
    records = Records(OUT, "TRAIN", **KEPT)
    read_all(records, local, seed=1)
    for path in Path("cache").glob("*/*") if what != "file" else ():
        if what == "emptied":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2 | 1)
    read_all(records, local, seed=2)
    read_all(Records(OUT, "TRAIN", **KEPT), local, seed=3)
    said = [record.message for record in caplog.records if "local cache" in record.message]
    assert len(said) == (2 if what == "file" else 0)


DAMAGED = {
    "uri": [b"", b"\xff\xfe", b"gs://other/out", b"x" * 10_000, os.urandom(300)],
    "counters": [b"", b"\xff" * 24, b"\0" * 24, os.urandom(24), b"x" * 5000],
    "*.map": [b"", b"\xff", b"\xff" * 4000, os.urandom(4000), b"\1\0\0\0" * 1000],
    "*.data": [b"", os.urandom(3000)],
    "*.index": [b"", b"\xff" * 4000, os.urandom(4000)],
}


def kept_paths(name: str) -> list[Path]:
    return [path for path in Path("cache").rglob(name) if path.is_file() and not path.is_symlink()]


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_note_costs_a_fetch(bucket: Any, local: list[Any], name: str) -> None:
    few = local[:40]
    for data in DAMAGED[name]:
        assert list(Records(OUT, "TRAIN", **KEPT)[[*range(40)]]) == few
        open_one = Records(OUT, "TRAIN", **KEPT)
        assert open_one[0] == few[0]
        for path in kept_paths(name):
            path.write_bytes(data)
        assert list(open_one[[*range(40)]]) == few
        assert list(Records(OUT, "TRAIN", **KEPT)[[*range(40)]]) == few
        del open_one
        assert invoke("cache", "cache").exit_code == 0
        cleared = invoke("cache", "cache", "--clear")
        assert (cleared.exit_code, "removed" in cleared.stdout) == (0, True)
        assert not kept_paths("*.data")


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("put", ["link", "broken link", "loop", "pipe", "folder"])
def test_no_link_is_followed(bucket: Any, local: list[Any], put: str, name: str) -> None:
    others = Path("others")
    others.mkdir()
    (others / "mine").write_bytes(b"mine" * 1000)
    assert Records(OUT, "TRAIN", **KEPT)[0] == local[0]
    for path in kept_paths(name):
        path.unlink()
        if put == "pipe":
            os.mkfifo(path)
        elif put == "folder":
            path.mkdir()
        else:
            to = {"link": others / "mine", "broken link": others / "new", "loop": path}[put]
            path.symlink_to(to.absolute())
    assert list(Records(OUT, "TRAIN", **KEPT)[[*range(40)]]) == local[:40]
    for command in (["cache", "cache"], ["cache", "cache", "--clear"]):
        result = invoke(*command)
        assert len(result.stderr.splitlines()) <= 1
        assert result.exit_code in (0, 1, 2)
    assert {path.name: path.read_bytes() for path in others.iterdir()} == {"mine": b"mine" * 1000}


def test_a_link_to_a_folder_is_not_followed(bucket: Any, local: list[Any]) -> None:
    assert Records(OUT, "TRAIN", **KEPT)[0] == local[0]
    (folder,) = (path.parent for path in kept_paths("uri"))
    folder.rename("theirs")
    before = {path.name: path.read_bytes() for path in Path("theirs").iterdir()}
    folder.symlink_to(Path("theirs").absolute())
    assert list(Records(OUT, "TRAIN", **KEPT)[[*range(40)]]) == local[:40]
    for command in (["cache", "cache"], ["cache", "cache", "--clear"]):
        assert OUT not in invoke(*command).stdout
    assert {path.name: path.read_bytes() for path in Path("theirs").iterdir()} == before


def test_what_is_not_the_caches_stays(bucket: Any, dataset: Path, local: list[Any]) -> None:
    theirs = [
        "notes.txt",
        "a.unready/x",
        "work/uri",
        "work/a.map",
        "01.unready/uri",
        "uri",
        "b.map",
    ]
    theirs += [f"{'0' * 20}/uri.txt", f"{'0' * 20}/x.map", f"{'1' * 19}/uri", f"{'1' * 21}/uri"]
    for name in theirs:
        path = Path("cache", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    read_all(Records(OUT, "TRAIN", **KEPT), local, seed=1)
    (folder,) = {path.parent for path in kept_paths("*.data")}
    among = [folder / "notes.txt", folder / "x.data", folder / f"{'0' * 20}.data"]
    for path in among:
        path.write_bytes(b"")
    # One that is full looks for others that nobody uses.
    bucket.put_folder("gs://bkt/second", dataset)
    second = Records("gs://bkt/second", "TRAIN", cache_bytes=2**21, **KEPT)
    read_all(second, local, seed=2)
    del second
    assert f"removed {OUT}" not in invoke("cache", "cache").stdout
    invoke("cache", "cache", "--clear")
    assert not [path for path in kept_paths("*.data") if "@" in path.name]
    for name in theirs:
        assert Path("cache", name).read_bytes() == name.encode()
    assert all(path.exists() for path in among)
    read_all(Records(OUT, "TRAIN", **KEPT), local, seed=3)


def test_a_full_disk_is_read_past_with_one_warning(
    bucket: Any, local: list[Any], caplog: Any
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20 * BLOCK, limits[1]))
    try:
        records = Records(OUT, "TRAIN", **KEPT)
        read_all(records, local, seed=1)
        read_all(records, local, seed=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    said = [record.message for record in caplog.records if "local cache" in record.message]
    assert len(said) == 1
    assert "cannot be used: File too large. What it does not have is not kept" in said[0]


@pytest.mark.slow
@pytest.mark.parametrize("replaced_after", [0, 30, RECORDS])
def test_an_object_that_was_replaced_is_never_mixed(
    bucket: Any, local: list[Any], tmp_path: Path, replaced_after: int
) -> None:
    records = Records(OUT, "TRAIN", **KEPT)
    for number in range(replaced_after):
        assert records[number] == local[number]
    frame = photo_frame(RECORDS)[::-1].reset_index(drop=True)
    tfrecorder.convert(frame, tmp_path / "new", num_shards=2, progress=False)
    new = list(Records(tmp_path / "new", "TRAIN", inputs="all", decode=False))
    bucket.put_folder(OUT, tmp_path / "new")
    errors = []
    for number in range(RECORDS):
        try:
            assert records[number] == local[number]
        except DatasetError as error:
            errors.append(str(error))
    assert bool(errors) == (replaced_after < RECORDS)
    assert all("was replaced since" in words for words in errors)
    read_all(Records(OUT, "TRAIN", **KEPT), new, seed=1)


# ----------------------------------------------------------------------------------- what leaves


@pytest.mark.slow
def test_what_nobody_uses_makes_room(bucket: Any, dataset: Path, local: list[Any]) -> None:
    bucket.put_folder("gs://bkt/other", dataset)
    size = sum(path.stat().st_size for path in dataset.glob("train-*.tfrecord"))
    options = {"cache_bytes": int(size * 1.3), **KEPT}
    used = Records(OUT, "TRAIN", **options)
    read_all(used, local, seed=1)
    other = Records("gs://bkt/other", "TRAIN", **options)
    read_all(other, local, seed=1)
    assert set(CacheFolder("cache").datasets()) == {OUT, "gs://bkt/other"}
    bucket.forget_requests()
    read_all(used, local, seed=2)
    assert asked(bucket) == 0, "what is in use stays"
    del used, other
    other = Records("gs://bkt/other", "TRAIN", **options)
    read_all(other, local, seed=2)
    assert on_disk() <= options["cache_bytes"]
    bucket.forget_requests()
    read_all(other, local, seed=3)
    assert asked(bucket) == 0
    assert set(CacheFolder("cache").datasets()) == {"gs://bkt/other"}


@pytest.mark.slow
def test_older_versions_leave_when_room_is_needed(
    bucket: Any, dataset: Path, local: list[Any]
) -> None:
    size = sum(path.stat().st_size for path in dataset.glob("train-*.tfrecord"))
    options = {"cache_bytes": int(size * 1.3), **KEPT}
    for _ in range(2):
        read_all(Records(OUT, "TRAIN", **options), local, seed=1)
        bucket.put_folder(OUT, dataset)
    read_all(Records(OUT, "TRAIN", **options), local, seed=1)
    bucket.forget_requests()
    read_all(Records(OUT, "TRAIN", **options), local, seed=1)
    assert asked(bucket) == 0
    assert on_disk() <= options["cache_bytes"]


# ------------------------------------------------------------------------------- looking at it


def test_the_command_shows_and_clears(bucket: Any, local: list[Any]) -> None:
    records = Records(OUT, "TRAIN", **KEPT)
    read_all(records, local, seed=1)
    shown = invoke("cache", "cache").stdout.splitlines()
    assert shown[1].split()[0] == OUT
    assert "0 B not kept" in shown[-1]
    assert json.loads(invoke("cache", "cache", "--json").stdout)["used"] >= on_disk()
    assert "removed" not in invoke("cache", "cache", "--clear").stdout, "it is in use"
    del records
    assert f"removed {OUT}" in invoke("cache", "cache", "--clear").stdout
    assert json.loads(invoke("cache", "cache", "--json").stdout)["used"] == 0
    wrong = invoke("cache", "nowhere")
    assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (2, 1)
    assert "it is not the folder of a local cache" in wrong.stderr


@pytest.mark.slow
def test_a_benchmark_says_what_was_here(bucket: Any, local: list[Any]) -> None:
    read_all(Records(OUT, "TRAIN", **KEPT), local, seed=1)
    shown = invoke("benchmark", OUT, "--local-cache", "cache", "--seconds", "0.3")
    assert "100.0% of the bytes kept here, 0.0 MB fetched" in shown.stdout, shown.stderr
