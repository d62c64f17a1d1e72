"""What `undo` would put back is as it was written, or `verify` and `undo` say which file is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.damage import all_files, flip, restore
from helpers.growing_cases import QUIET, table
from support import public_files

import tfrecorder
from tfrecorder.errors import DatasetError

DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "a byte is other": lambda data: flip(data, len(data) // 2, 1),
    "it is shorter": lambda data: data[:-3],
    "it is longer": lambda data: data + b" ",
    "it is gone": lambda data: None,
}


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Converted, appended, and all its shards corrected."""
    monkeypatch.chdir(tmp_path)
    tfrecorder.convert(table(0, 6), "out", num_shards=1, **QUIET)
    tfrecorder.append(table(6, 3), "out", **QUIET)
    tfrecorder.update(table(0, 9).assign(label="corrected"), "out", **QUIET)
    return Path("out")


def used_by_undo(out: Path) -> list[str]:
    """Two shards, each with an index and a table; and the manifests of both commits."""
    kept = [*out.glob("_tfrecorder/before/*"), *sorted(out.glob("_tfrecorder/commits/*"))[:-1]]
    return [str(path.relative_to(out)) for path in kept]


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_of_what_undo_uses_is_found_and_refused(out: Path, damage: str) -> None:
    files = all_files(out)
    names = used_by_undo(out)
    assert len(names) == 8
    for name in names:
        restore(out, files)
        data = DAMAGES[damage](files[name])
        if data is None:
            (out / name).unlink()
        else:
            (out / name).write_bytes(data)
        before = public_files(out)
        assert name in {fault.file for fault in tfrecorder.verify(out, progress=False).found}
        for is_tried in (True, False):
            with pytest.raises(DatasetError) as caught:
                tfrecorder.undo(out, dry_run=is_tried)
            assert Path(name).name in str(caught.value), f"{name}: {caught.value}"
        assert public_files(out) == before
    restore(out, files)
    assert tfrecorder.verify(out, progress=False).ok
    assert tfrecorder.undo(out).kind == "update"
    assert tfrecorder.verify(out, records=True, progress=False).ok
