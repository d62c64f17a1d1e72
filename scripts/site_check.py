"""Fails if a page of the site is cut on a laptop or a phone, or a usual word finds nothing.

python scripts/site_check.py       # after mkdocs build; `make docs` does both

The pages are measured in Chromium; without it, only the words are looked up.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
sys.path.insert(0, str(ROOT / "tests"))
from helpers.chromium import CHROMIUM, browser  # noqa: E402

#: What people look for, as typed.
QUERIES = """
16 bit, audio, augment, automl, azure, benchmark, blurry, bounding box, cache, caption, checkpoint,
class imbalance, class weight, coco, conda, corrupt image, crash, croissant, crop, cross validation,
csv, cutmix, dask, dataflow, ddp, dicom, distributed, docker, exif, FixedLenFeature, float16, GDPR,
gcs credentials, gpu, grayscale, heic, hierarchy, hugging face, imagenet, jax, json lines, k-fold,
kafka, keras, kill, kubernetes, leak, license, lightning, mask, medical, memory, merge datasets,
mixup, multilabel, near duplicates, normalize, numpy, orientation, out of memory, outlier,
oversample, parquet, parse_single_example, pascal voc, prefetch, privacy, ray, rename class, resize,
resume training, rotate, s3, schema, segmentation, shuffle buffer, slow, slurm, spark, split,
stratified, tfds, tiff, tqdm, truncated, undo, vertex, video, webdataset, webp, windows, yolo
"""

#: Code that is wider than its block on a laptop; a page that is wider than a phone.
CUT = """[...document.querySelectorAll(".md-typeset pre > code")]
  .filter(code => code.scrollWidth > code.clientWidth + 1)
  .map(code => code.textContent.slice(0, 60))"""
WIDE = "document.documentElement.scrollWidth"
#: The names of all sections that are on the screen without scrolling.
SECTIONS = """[...document.querySelectorAll(".md-tabs__link")]
  .filter(link => link.getBoundingClientRect().right <= innerWidth).length"""


def separator() -> re.Pattern[str]:
    """What divides words in the search of the site."""
    text = (ROOT / "mkdocs.yml").read_text()
    found = re.search(r"separator: ('.+')", text)
    assert found, "mkdocs.yml has no separator"
    return re.compile(yaml.safe_load(found[1]))


def lost_queries() -> Iterator[str]:
    """The queries of which no part of a page has all words, or words that begin so."""
    divides = separator()
    parts = []
    for part in json.loads((SITE / "search/search_index.json").read_text())["docs"]:
        text = re.sub(r"<[^>]+>", " ", f"{part['title']} {part['text']}").lower()
        parts.append({word.strip("'`;?*<>{}&") for word in divides.split(text)})
    for query in " ".join(QUERIES.split()).split(", "):
        words = [word for word in divides.split(query.lower()) if word]
        if not any(all(any(w.startswith(one) for w in part) for one in words) for part in parts):
            yield f"a search for {query!r} finds nothing"


def cut_pages() -> Iterator[str]:
    """What does not fit, of every page."""
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as page:
        for path in sorted(SITE.glob("*.html")):
            page.open(path, 1366)
            yield from (f"{path.name}: cut at 1,366 px: {code!r}" for code in page.evaluate(CUT))
            if path.name == "index.html" and page.evaluate(SECTIONS) < 8:
                yield "the names of the sections do not fit at 1,366 px"
            page.open(path, 400)
            if (width := page.evaluate(WIDE)) > 400:
                yield f"{path.name}: {width} px wide at 400 px"


if __name__ == "__main__":
    found = [*lost_queries(), *(cut_pages() if CHROMIUM else ())]
    if found:
        sys.exit("\n".join(found))
    print(
        "every page fits, and every query finds a page" if CHROMIUM else "no Chromium: not measured"
    )
