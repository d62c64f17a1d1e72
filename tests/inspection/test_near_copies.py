"""What is known of how images look, and near copies found by it."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from pathlib import Path

import google_crc32c
import numpy as np
import pandas as pd
import pytest
from helpers.growing_cases import QUIET
from helpers.planted_cases import SEEDS, planted
from PIL import Image, ImageChops, ImageDraw, ImageFont
from support import PHOTOS, TESTS, invoke

import tfrecorder

LOOKS = ("hash", "mean", "deviation")


def looks_of(directory: str, names: Sequence[str] = LOOKS) -> pd.DataFrame:
    """What the tables of a dataset know of how its images look, by file name."""
    tables = map(pd.read_parquet, Path(directory, "_tfrecorder/tables").glob("*.parquet"))
    rows = pd.concat(tables).set_index("image/filename").sort_index()
    return rows[[f"tfrecorder.source.{name}/image" for name in names]].set_axis(names, axis=1)


def saved(image: Image.Image, name: str, **options: int) -> str:
    image.save(name, **options)
    return name


def copies_of(photo: Path) -> list[str]:
    """A photograph, half its size, at quality 50, and as a PNG."""
    with Image.open(photo) as opened:
        image = opened.convert("RGB")
    half = image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)
    images = [saved(image, "a.jpg", quality=90), saved(half, "b.jpg"), saved(image, "c.png")]
    return [*images, saved(image, "d.jpg", quality=50)]


def bits(one: float, other: float) -> int:
    return (int(one) ^ int(other)).bit_count()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "seen"),
    [({}, ["a.jpg", "b.jpg", "d.jpg"]), ({"check": "header"}, [])],
    ids=["decode", "header"],
)
def test_a_table_says_what_each_decoded_image_looks_like(
    options: dict[str, str], seen: list[str]
) -> None:
    names = copies_of(PHOTOS[0])
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": names})
    tfrecorder.convert(frame, "out", **options, **QUIET)
    tfrecorder.convert(frame, "all", fingerprints=True, **options, **QUIET)
    looks, every = looks_of("out"), looks_of("all")
    assert looks.dropna().index.tolist() == seen
    assert every.dropna().index.tolist() == names
    assert max(bits(one, every["hash"]["a.jpg"]) for one in every["hash"]) <= 4
    levels = np.asarray(Image.open("c.png").convert("L"))
    assert (every["mean"] - 100 * levels.mean()).abs().max() < 100
    assert every["deviation"].between(1, 100 * levels.std()).all()
    public = {path.name for path in Path("out").iterdir()}
    for name in public - {"_tfrecorder", "dataset_info.json"}:  # which names the plan
        assert Path("out", name).read_bytes() == Path("all", name).read_bytes()


def test_a_table_says_how_large_each_image_is_also_when_it_was_made_again() -> None:
    names = copies_of(PHOTOS[0])
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": names})
    tfrecorder.convert(frame, "out", check="header", **QUIET)
    sizes = looks_of("out", ["width", "height"])
    assert [*sizes.itertuples()] == [(name, *Image.open(name).size) for name in names]
    for table in Path("out/_tfrecorder/tables").glob("*.parquet"):
        table.unlink()
    tfrecorder.repair("out", progress=False)
    pd.testing.assert_frame_equal(looks_of("out", ["width", "height"]), sizes)


@pytest.mark.slow
def test_what_images_look_like_stays_known_after_changes() -> None:
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": list(map(str, PHOTOS[:6]))})
    frame["label"] = list("aabbab")
    tfrecorder.convert(frame[:4], "out", **QUIET)
    tfrecorder.append(frame[4:], "out", **QUIET)
    before = looks_of("out")
    tfrecorder.update(frame.assign(label=list("babbaa")), "out", **QUIET)
    tfrecorder.remove("out", {"image_uri": str(PHOTOS[0])}, **QUIET)
    tfrecorder.compact("out", "compacted", **QUIET)
    pd.testing.assert_frame_equal(looks_of("compacted"), before.drop(str(PHOTOS[0])))


def test_the_smallest_images_and_odd_ones_have_a_look() -> None:
    gray = Image.effect_noise((300, 300), 60)
    sixteen = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    sizes = [gray.crop((0, 0, *size)) for size in ((1, 1), (3, 200), (28, 28))]
    names = [saved(image, f"{number}.jpg") for number, image in enumerate(sizes)]
    names += [saved(sixteen, "16.png"), saved(gray.convert("1"), "bits.png")]
    tfrecorder.convert(
        pd.DataFrame({"split": "TRAIN", "image_uri": names}), "out", fingerprints=True, **QUIET
    )
    looks = looks_of("out")
    assert looks.notna().all(axis=None)
    assert abs(looks["mean"]["16.png"] / 100 - np.asarray(gray).mean()) < 2


@pytest.mark.slow
def test_a_suspect_has_a_look_too() -> None:
    data = PHOTOS[30].read_bytes()
    half = len(data) // 2
    Path("a.jpg").write_bytes(data[:half] + bytes(500) + data[half + 500 :])
    frame = pd.DataFrame({"split": ["TRAIN"], "image_uri": ["a.jpg"]})
    assert tfrecorder.convert(frame, "out", **QUIET).suspects == 1
    assert looks_of("out").notna().all(axis=None)


def variants(folder: str, photos: list[Path], suffix: str = "jpg") -> pd.DataFrame:
    """Photographs, and of each copies of half the size, of quality 50, and cut by 3 %."""
    Path(folder).mkdir()
    rows = []
    for number, photo in enumerate(photos):
        with Image.open(photo) as opened:
            image = opened.convert("RGB")
        width, height = image.size
        half = image.resize((width // 2, height // 2), Image.Resampling.LANCZOS)
        cut = image.crop((0, 0, round(width * 0.97), round(height * 0.97)))
        for kind, made, quality in (("whole", image, 90), ("half", half, 90), ("low", image, 50)):
            name = saved(made, f"{folder}/{number}-{kind}.{suffix}", quality=quality)
            rows.append(("TEST" if kind == "half" else "TRAIN", name, f"c{number % 3}"))
        name = saved(cut, f"{folder}/{number}-cut.{suffix}", quality=90)
        rows.append(("TRAIN", name, f"c{number % 3}"))
    return pd.DataFrame(rows, columns=["split", "image_uri", "label"])


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_near_copies_are_found_with_their_groups(suffix: str) -> None:
    frame = variants("photos", PHOTOS[3::8], suffix)
    tfrecorder.convert(frame, "out", fingerprints=suffix == "png", **QUIET)
    found = tfrecorder.duplicates("out", progress=False)
    assert found.columns.tolist() == [*("group", "split", "image_uri", "label", "row", "distance")]
    lost = {*frame["image_uri"]} - {*found["image_uri"]}
    assert all("cut" in name for name in lost)
    assert len(lost) <= 2
    photo = found["image_uri"].str.extract(r"(\d+)-")[0]
    assert (photo.groupby(found["group"]).nunique() == 1).all()
    assert found["group"].nunique() == len(PHOTOS[3::8])
    assert (found.groupby("group")["distance"].min() == 0).all()


@pytest.mark.slow
def test_images_that_all_look_alike_give_one_warning() -> None:
    Path("digits").mkdir()
    font, draw_of, rng = ImageFont.load_default(22), ImageDraw.Draw, np.random.default_rng(0)
    names = []
    for number in range(400):
        image = Image.new("L", (28, 28))
        draw_of(image).text((14, 14), str(number % 10), fill=255, font=font, anchor="mm")
        turned = image.rotate(rng.normal(0, 10), Image.Resampling.BICUBIC)
        grain = Image.fromarray(rng.integers(0, 9, (28, 28), np.uint8))
        names.append(saved(ImageChops.add(turned, grain), f"digits/{number}.jpg", quality=90))
    Path("digits/again.jpg").write_bytes(Path("digits/7.jpg").read_bytes())
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": [*names, "digits/again.jpg"]})
    tfrecorder.convert(frame, "out", **QUIET)
    with pytest.warns(UserWarning, match="look so much alike"):
        found = tfrecorder.duplicates("out", progress=False)
    assert sorted(found["image_uri"]) == ["digits/7.jpg", "digits/again.jpg"]
    assert found.attrs["copies"] == {"exact": 1, "near": None, "scene": None}


def test_images_that_nobody_decoded_are_said_wherever_copies_are_counted() -> None:
    names = [saved(Image.open(photo), f"{number}.png") for number, photo in enumerate(PHOTOS[:3])]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": [str(PHOTOS[9]), *names]})
    result = tfrecorder.convert(frame, "out", **QUIET)
    words = "3 images have no fingerprint, so near copies of them are not found"
    with pytest.warns(UserWarning, match=words):
        assert tfrecorder.duplicates("out", progress=False).empty
    info = tfrecorder.info("out")
    assert (result.unseen, info.unseen) == (3, 3)
    for said in (result, info, tfrecorder.preview("out", progress=False).page):
        assert words in str(said)
    new = pd.DataFrame({"split": "TRAIN", "image_uri": [saved(Image.open(PHOTOS[4]), "new.jpg")]})
    report = tfrecorder.validate(new, check_images=True, against="out", progress=False)
    assert report.set_index("code")["message"]["not_compared"].startswith(words)
    assert "near copies" not in str(tfrecorder.convert(frame, "all", fingerprints=True, **QUIET))
    assert tfrecorder.info("all").unseen == 0


@pytest.mark.slow
def test_the_count_of_images_without_a_fingerprint_follows_every_change() -> None:
    names = [saved(Image.open(photo), f"{number}.png") for number, photo in enumerate(PHOTOS[:4])]
    names += list(map(str, PHOTOS[4:8]))
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": names, "label": list("abababab")})
    tfrecorder.convert(frame[:6], "out", num_shards=2, **QUIET)
    assert tfrecorder.info("out").unseen == 4
    tfrecorder.append(frame[6:], "out", **QUIET)
    tfrecorder.update(frame.assign(label=list("babababa")), "out", **QUIET)
    assert tfrecorder.info("out").unseen == 4
    tfrecorder.update(frame.assign(split=["TEST"] * 3 + ["TRAIN"] * 5), "out", **QUIET)
    tfrecorder.remove("out", {"image_uri": names[0]}, **QUIET)
    assert tfrecorder.info("out").unseen == 3
    tfrecorder.compact("out", **QUIET)
    assert tfrecorder.info("out").unseen == 3
    newest = max(Path("out/_tfrecorder/commits").glob("*.json"))
    data = newest.read_bytes()
    newest.unlink()
    tfrecorder.repair("out", progress=False)
    assert tfrecorder.info("out").unseen == 3
    assert b'"fingerprints"' in data


def test_a_version_that_did_not_count_fingerprints_is_said() -> None:
    shutil.copytree(TESTS / "datasets" / "form-4", "out")
    info = tfrecorder.info("out")
    assert info.unseen is None
    assert "near copies: `tfrecorder duplicates out` counts the images without" in str(info)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["webp", "bmp", "tiff", "gif"])
def test_near_copies_of_what_is_stored_anew_are_found_unasked(suffix: str) -> None:
    frame = variants("photos", PHOTOS[3:27:8], suffix)
    result = tfrecorder.convert(frame, "out", **QUIET)
    assert (result.unseen, tfrecorder.info("out").unseen) == (0, 0)
    found = tfrecorder.duplicates("out", progress=False)
    assert found["group"].nunique() == 3
    assert {name for name in frame["image_uri"] if "cut" not in name} <= {*found["image_uri"]}
    before = looks_of("out")
    for table in Path("out/_tfrecorder/tables").glob("*.parquet"):
        table.unlink()
    tfrecorder.repair("out", progress=False)
    pd.testing.assert_frame_equal(looks_of("out"), before)


@pytest.mark.slow
def test_the_copies_are_removed_and_corrected_by_the_table() -> None:
    frame = variants("photos", PHOTOS[3:27:8])
    tfrecorder.convert(frame[:8], "out", **QUIET)
    tfrecorder.append(frame[8:], "out", **QUIET)
    found = tfrecorder.duplicates("out", progress=False)
    assert found["group"].nunique() == 3
    changed = found.assign(split="TRAIN", label="c9")
    others = changed.drop(columns="distance")
    assert "column_left_out" in tfrecorder.update(others, "out", dry_run=True, **QUIET).warnings
    result = tfrecorder.update(changed, "out", **QUIET)
    assert [*result.warnings] == ["new_class"]  # and not of columns that are left out
    rows = tfrecorder.to_frame("out").set_index("image_uri").loc[found["image_uri"]]
    assert set(rows["label"]) == {"c9"}
    found = tfrecorder.duplicates("out", progress=False)
    assert (found["split"] == "TRAIN").all()
    tfrecorder.remove("out", found[found["group"].duplicated()], **QUIET)
    assert tfrecorder.duplicates("out", progress=False).empty
    assert tfrecorder.info("out").records == 3 + len(frame) - len(found)


@pytest.mark.slow
def test_a_preview_shows_near_copies_side_by_side_and_names_the_leak() -> None:
    frame = variants("photos", PHOTOS[3:27:8])
    tfrecorder.convert(frame, "out", **QUIET)
    page = tfrecorder.preview("out", progress=False).page
    assert "3 TEST records are near copies of TRAIN records" in page
    leak = page.partition("near copies of TRAIN records")[2].partition("</li>")[0]
    assert [name for name in frame["image_uri"] if Path(name).name in leak] == [
        f"photos/{number}-half.jpg" for number in range(3)
    ]
    assert "Near copies" in page
    near = tfrecorder.duplicates("out", progress=False)["group"].duplicated().sum()
    assert f": 0 exact (same bytes), {near} near (same picture), 0 of the same scene" in page
    others = frame[frame["image_uri"].str.contains("whole")]
    tfrecorder.convert(others, "others", **QUIET)
    assert "near copies of" not in tfrecorder.preview("others", progress=False).page


def copies_of_each_kind() -> pd.DataFrame:
    """Photographs, and exact copies, near ones and scenes: three of each."""
    images = [Image.open(photo).convert("RGB") for photo in PHOTOS[3:35:8]]
    names = [saved(image, f"{number}.jpg", quality=90) for number, image in enumerate(images)]
    for name in ("same.jpg", "third.jpg"):
        names.append(str(shutil.copy("0.jpg", name)))
    half = images[1].resize((images[1].width // 2, images[1].height // 2))
    names += [saved(half, "half.jpg"), saved(images[1], "low.jpg", quality=50)]
    names += [saved(images[2], "other.webp"), str(shutil.copy("half.jpg", "again.jpg"))]
    for left in (20, 60, 100):
        scene = images[3].copy()
        ImageDraw.Draw(scene).ellipse((left, 40, left + 40, 80), "red")
        names.append(saved(scene, f"{left}.jpg", quality=90))
    return pd.DataFrame({"image_uri": names, "split": ["TRAIN"] * 8 + ["TEST"] * 5})


def test_what_counts_copies_gives_the_same_numbers() -> None:
    frame = copies_of_each_kind()
    counts = {"exact": 3, "near": 3, "scene": 3}
    words = "3 exact (same bytes), 3 near (same picture), 3 of the same scene"

    report = tfrecorder.validate(frame, check_images=True, progress=False)
    assert report.attrs["copies"] == counts
    assert f"copies: {words}" in str(report)
    rows = report.groupby("code")["row"].count()
    assert rows["exact_copy"] + rows["exact_leakage"] == counts["exact"]
    assert rows["near_copy"] + rows["near_leakage"] == counts["near"]
    exact = report[report["code"] == "exact_leakage"]["message"].tolist()
    assert exact == ["'again.jpg' in TEST has the bytes of 'half.jpg' in TRAIN"]

    result = tfrecorder.convert(frame, "out", **QUIET)
    info = tfrecorder.info("out")
    assert (result.copies.exact, info.copies.exact) == (3, 3)
    for said in (result, info):
        assert "3 exact (same bytes); `tfrecorder duplicates out` compares pictures" in str(said)
    preview = tfrecorder.preview("out", progress=False)
    assert preview.as_dict()["copies"] == counts
    assert f"Copies among all 13 records: {words}" in preview.page
    found = tfrecorder.duplicates("out", progress=False)
    assert found.attrs["copies"] == counts
    assert found["group"].duplicated().sum() == 6  # those to remove: no scene
    assert words in invoke("duplicates", "out").stderr


@pytest.mark.slow
def test_copies_of_what_is_there_are_counted_beside_it() -> None:
    frame = copies_of_each_kind()
    tfrecorder.convert(frame[:6], "part", **QUIET)
    rest = tfrecorder.validate(frame, check_images=True, against="part", progress=False)
    assert rest.attrs["copies"] == {"exact": 1, "near": 3, "scene": 3}


def test_validate_finds_near_copies_among_the_files() -> None:
    frame = variants("photos", PHOTOS[3:27:8])
    frame = pd.concat([frame, frame[:1]], ignore_index=True)  # the same file is no near copy
    report = tfrecorder.validate(frame, check_images=True, progress=False)
    leaks = report[report["code"] == "near_leakage"]
    assert leaks["value"].str.contains("half").all()
    assert len(leaks) == 3
    assert "in TEST looks like 'photos/0-whole.jpg' in TRAIN" in leaks["message"].iloc[0]
    assert leaks["other_row"].tolist() == [0, 4, 8]
    near = report[report["code"] == "near_copy"]["value"]
    assert {f"photos/{number}-low.jpg" for number in range(3)} <= {*near}
    report = tfrecorder.validate(frame[::4], check_images=True, progress=False)
    assert not report["code"].str.startswith("near").any()


def with_the_crc32c_of(other: bytes, image: bytes) -> tuple[bytes, bytes]:
    """Two JPEGs as two of the same size and CRC32C, which a comment at their beginning makes up."""
    longer = max(len(other), len(image)) + 4

    def padded(data: bytes) -> bytes:
        free = longer - len(data)
        return data[:2] + b"\xff\xfe" + (free + 2).to_bytes(2, "big") + bytes(free) + data[2:]

    other, image = padded(other), padded(image)

    def changed(bits: int) -> bytes:
        return image[:6] + bits.to_bytes(4, "big") + image[10:]

    # Each bit changes the CRC32C in a way of its own: by their highest bits, what gives which.
    ways: dict[int, tuple[int, int]] = {}
    plain = google_crc32c.value(image)

    def made_of(change: int, bits: int = 0) -> tuple[int, int]:
        for high in sorted(ways, reverse=True):
            if change >> high & 1:
                change, bits = change ^ ways[high][0], bits ^ ways[high][1]
        return change, bits

    for bit in range(32):
        way = made_of(google_crc32c.value(changed(1 << bit)) ^ plain, 1 << bit)
        ways[way[0].bit_length() - 1] = way
    return other, changed(made_of(google_crc32c.value(other) ^ plain)[1])


def test_copies_byte_for_byte_are_so_by_their_bytes() -> None:
    one, other = with_the_crc32c_of(PHOTOS[0].read_bytes(), PHOTOS[30].read_bytes())
    assert (len(one), google_crc32c.value(one)) == (len(other), google_crc32c.value(other))
    for name, data in (("a", one), ("b", other), ("c", one)):
        Path(f"{name}.jpg").write_bytes(data)
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": ["a.jpg", "b.jpg", "c.jpg"]})
    tfrecorder.convert(frame, "out", **QUIET)
    assert tfrecorder.duplicates("out", progress=False)["image_uri"].tolist() == ["a.jpg", "c.jpg"]


def test_a_damaged_record_is_named_and_the_others_are_compared() -> None:
    tfrecorder.convert(variants("photos", PHOTOS[3:27:8]), "out", **QUIET)
    shard = Path("out", "test-00000.tfrecord")
    data = bytearray(shard.read_bytes())
    data[len(data) // 6] ^= 1
    shard.write_bytes(data)
    with pytest.raises(tfrecorder.errors.DatasetError, match="of the record at byte"):
        tfrecorder.duplicates("out", progress=False)
    page = tfrecorder.preview("out", num_records=1, per_split=1, progress=False).page
    assert "test-00000.tfrecord is damaged: of the record at byte" in page
    assert "2 TEST records are near copies of TRAIN records" in page


def test_a_search_that_runs_out_of_time_says_so() -> None:
    tfrecorder.convert(variants("photos", PHOTOS[3:27:8]), "out", **QUIET)
    page = tfrecorder.preview("out", seconds=0, progress=False).page
    assert "Near copies: time was up before all were compared" in page
    assert "near copies of TRAIN" not in page


def test_a_table_that_was_made_again_says_what_images_look_like() -> None:
    frame = variants("photos", PHOTOS[3:27:8])
    Path("photos/again.jpg").write_bytes(Path("photos/0-whole.jpg").read_bytes())
    frame.loc[len(frame)] = ["TRAIN", "photos/again.jpg", "c0"]
    tfrecorder.convert(frame, "out", num_shards=2, **QUIET)
    looks, found = looks_of("out"), tfrecorder.duplicates("out", progress=False)
    for table in Path("out/_tfrecorder/tables").glob("train-0000*.parquet"):
        table.unlink()
    tfrecorder.repair("out", progress=False)
    pd.testing.assert_frame_equal(looks_of("out"), looks)
    pd.testing.assert_frame_equal(tfrecorder.duplicates("out", progress=False), found)


def test_the_shell_prints_the_table() -> None:
    frame = variants("photos", PHOTOS[3:27:8])
    tfrecorder.convert(frame, "out", **QUIET)
    printed = invoke("duplicates", "out")
    assert printed.exit_code == 0, printed.output
    found = tfrecorder.duplicates("out")
    assert len(found) > 5
    pd.testing.assert_frame_equal(
        pd.read_csv(io.StringIO(printed.stdout)), found, check_dtype=False
    )


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_the_result_counts_images_that_are_the_same_under_other_names(suffix: str) -> None:
    uris = [saved(Image.open(photo), f"{at}.{suffix}") for at, photo in enumerate(PHOTOS[:3])]
    for name in ("again", "third"):
        Path(f"{name}.{suffix}").write_bytes(Path(uris[0]).read_bytes())
    frame = pd.DataFrame({"image_uri": [*uris, f"again.{suffix}"], "split": "TRAIN"})
    result = tfrecorder.convert(frame, "out", **QUIET)
    assert (result.copies.exact, result.leaks) == (1, 0)
    words = "copies: 1 exact (same bytes); `tfrecorder duplicates out` compares pictures"
    assert words in str(result)
    third = pd.DataFrame({"image_uri": [f"third.{suffix}"], "split": "TEST"})
    result = tfrecorder.append(third, "out", **QUIET)
    assert (result.copies.exact, result.leaks) == (1, 1)  # those of its own rows alone
    assert "leakage: 1 image has the same bytes in several splits" in str(result)
    assert tfrecorder.info("out").copies.exact == 2


def test_copies_are_not_counted_where_nobody_knows_the_bytes() -> None:
    names = [saved(Image.open(PHOTOS[0]), name) for name in ("a.bmp", "b.bmp")]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": names})
    assert tfrecorder.convert(frame, "out", **QUIET).copies.exact == 1
    for path in (*Path("out/_tfrecorder/tables").iterdir(), *names):
        Path(path).unlink()
    tfrecorder.repair("out", progress=False)
    assert "copies: not counted; `tfrecorder duplicates out`" in str(tfrecorder.info("out"))
    assert tfrecorder.duplicates("out", progress=False).attrs["copies"]["exact"] == 1


def test_copies_have_the_columns_of_a_dataset_but_for_those_of_their_own() -> None:
    frame = variants("photos", PHOTOS[3:4]).assign(group="g", distance=2.5, age=7)
    numbers = {"distance": tfrecorder.schema.Number(), "age": tfrecorder.schema.Number()}
    schema = tfrecorder.schema.Schema(
        split=tfrecorder.schema.Split(),
        image_uri=tfrecorder.schema.Image(),
        group=tfrecorder.schema.Text(),
        **numbers,
    )
    tfrecorder.convert(frame.drop(columns="label"), "out", schema=schema, **QUIET)
    found = tfrecorder.duplicates("out", progress=False)
    assert [*found] == ["group", "split", "image_uri", "age", "row", "distance"]
    assert set(found["group"]) == {0}


def test_validate_finds_near_copies_of_what_is_there() -> None:
    frame = variants("photos", PHOTOS[3:27:8])
    tfrecorder.convert(frame[::4], "out", **QUIET)
    Path("again.jpg").write_bytes(Path("photos/0-whole.jpg").read_bytes())
    new = frame[frame["image_uri"].str.contains("half|low")]
    new.loc[99] = ["TRAIN", "again.jpg", "c0"]
    new = new.reset_index(drop=True)
    report = tfrecorder.validate(new, check_images=True, against="out", progress=False)
    rows = {code: of["row"].tolist() for code, of in report.groupby("code")}
    assert rows["near_there_leakage"] == [0, 2, 4]
    assert rows["near_there"] == [1, 3, 5]
    assert rows["same_bytes"] == [6]  # which is said once
    assert "near_copy" not in rows
    words = "'photos/0-half.jpg' in TEST looks like 'photos/0-whole.jpg' (row 0 there) in TRAIN"
    assert words in str(report)
    assert f"leakage: 3 rows are near copies of images of other splits: row 0, {words}" in str(
        report
    )
    new.to_csv("new.csv", index=False)
    shown = str(tfrecorder.validate("new.csv", check_images=True, against="out", progress=False))
    assert f"line 2: {words}" in shown
    assert f"of other splits: line 2, {words}" in shown
    assert "row 0," not in shown


def leaks(directory: str) -> int:
    found = tfrecorder.duplicates(directory, progress=False)
    return int((found.groupby("group")["split"].nunique() > 1).sum())


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_near_copies_without_a_split_get_one_together(suffix: str) -> None:
    frame = variants("photos", PHOTOS[3::8], suffix).drop(columns="split")
    options = {"seed": 1, "splits": {"TRAIN": 0.5, "TEST": 0.5}, "fingerprints": True} | QUIET
    tfrecorder.convert(frame, "apart", **options)
    assert leaks("apart") > 2
    result = tfrecorder.convert(frame, "out", group_copies=True, **options)
    assert leaks("out") == 0
    assert {*result.splits} == {"TRAIN", "TEST"}
    assert tfrecorder.convert(frame, "out", group_copies=True, **options).was_finished
    split = tfrecorder.to_frame("out").sort_index()["split"]
    report = tfrecorder.validate(
        frame, check_images=True, group_copies=True, seed=1, splits={"TRAIN": 0.5, "TEST": 0.5}
    )
    words = f"TRAIN {(split == 'TRAIN').sum()} "
    assert words in str(report)


@pytest.mark.slow
def test_a_stated_split_stays_and_its_copies_follow() -> None:
    frame = variants("photos", PHOTOS[3:27:8])
    frame["split"] = [*("", "TEST", "", ""), *("", "VALIDATION", "TEST", ""), *[""] * 4]
    with pytest.warns(UserWarning, match="looks like .* in VALIDATION .near_leakage."):
        tfrecorder.convert(frame, "out", group_copies=True, **QUIET)
    split = tfrecorder.to_frame("out").sort_index()["split"].tolist()
    assert split[:3] == ["TEST"] * 3
    assert split[4:7] == ["VALIDATION", "VALIDATION", "TEST"]
    assert len({*split[8:11]}) == 1
    with pytest.raises(tfrecorder.ValidationError, match="near_leakage"):
        tfrecorder.convert(frame, "no", group_copies=True, warnings=["near_leakage"], **QUIET)


@pytest.mark.slow
def test_what_shares_a_column_or_a_file_still_shares_a_split() -> None:
    frame = variants("photos", PHOTOS[3::8]).drop(columns="split")
    others = list(map(str, PHOTOS[5::8][: len(frame)]))
    by = pd.DataFrame({"image_uri": others, "label": "x", "patient": range(len(others))})
    half = frame[frame["image_uri"].str.contains("half")].reset_index(drop=True)
    whole = frame[frame["image_uri"].str.contains("whole")].reset_index(drop=True)
    rows = pd.concat([by, half.assign(patient=half.index), whole.assign(patient=whole.index + 50)])
    rows = pd.concat([rows, whole.assign(patient=whole.index + 50)], ignore_index=True)
    options = {"split_by": "patient", "splits": {"TRAIN": 0.5, "TEST": 0.5}} | QUIET
    tfrecorder.convert(rows, "out", group_copies=True, **options)
    assert leaks("out") == 0
    split = tfrecorder.to_frame("out").sort_index()["split"]
    assert (split.groupby(rows["patient"]).nunique() == 1).all()


@pytest.mark.slow
def test_an_append_puts_near_copies_into_the_split_of_those_that_are_there() -> None:
    frame = variants("photos", PHOTOS[3:27:8])
    wholes = frame[::4].assign(split=["TRAIN", "TEST", "VALIDATION"])
    tfrecorder.convert(wholes, "out", group_copies=True, **QUIET)
    halves = frame[1::4].assign(split="")
    dry = tfrecorder.append(halves, "out", dry_run=True, **QUIET)
    assert "3 rows are near copies of images that are there: row 0, 'photos/0-half.jpg'" in str(dry)
    with pytest.warns(UserWarning, match="3 rows are near copies of images that are there"):
        result = tfrecorder.append(halves, "out", **QUIET)
    assert "3 rows are near copies" in str(result)
    with pytest.raises(tfrecorder.errors.OptionError, match="an update moves no row by itself"):
        tfrecorder.update(halves, "out", group_copies=True, **QUIET)
    assert tfrecorder.update(halves.drop(columns="split"), "out", **QUIET).was_finished
    split = tfrecorder.to_frame("out").set_index("image_uri")["split"]
    assert split.loc[halves["image_uri"]].tolist() == ["TRAIN", "TEST", "VALIDATION"]


@pytest.mark.slow
def test_a_file_that_is_missing_stays_a_reject_where_copies_are_grouped() -> None:
    frame = variants("photos", PHOTOS[3:27:8]).drop(columns="split")
    frame.loc[len(frame)] = ["gone.jpg", "c0"]
    result = tfrecorder.convert(frame, "out", group_copies=True, max_reject_fraction=1.0, **QUIET)
    assert result.rejects == {"read/not_found": 1}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_pictures_of_one_scene_with_other_things_in_it_are_no_copies(
    seed: int, tmp_path: Path
) -> None:
    case = planted(tmp_path, seed)
    frame = case.frame[["split", "image_uri"]].assign(label="shape")
    copies = {"half.jpg": "5.jpg", "again.jpg": "50.jpg", "other.webp": "90.jpg"}
    for name, original in copies.items():
        with Image.open(tmp_path / original) as picture:
            copy = picture.resize((160, 120)) if name == "half.jpg" else picture.copy()
        copy.save(tmp_path / name, quality=60)
        frame.loc[len(frame)] = ["TEST", str(tmp_path / name), "shape"]
    tfrecorder.convert(frame, tmp_path / "out", progress=False)
    found = tfrecorder.duplicates(tmp_path / "out", progress=False)
    names = found["image_uri"].map(lambda uri: Path(uri).name)
    groups = {frozenset(of_group) for _, of_group in names.groupby(found["group"])}
    assert groups == {frozenset(pair) for pair in copies.items()}
