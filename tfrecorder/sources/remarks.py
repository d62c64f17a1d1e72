"""What a source says beyond its table: what is absent, of no use, or not stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tfrecorder.display.tables import counted, cut, unused_words
from tfrecorder.format.summary import NOT_STORED
from tfrecorder.schema.keys import URI_COLUMN
from tfrecorder.schema.splits import SPELLINGS
from tfrecorder.sources.finding import Finding

#: Above this share of files, a finding says so; else a note of the result.
_MANY = 0.2

#: How many files or classes a message names.
_NAMED = 5


class Remarks(NamedTuple):
    """Findings, and notes for the result."""

    findings: list[Finding]
    notes: list[str]

    def find(
        self,
        code: str,
        message: str,
        count: int,
    ) -> None:
        """Add a finding about so many files."""
        self.findings.append(Finding(code, [None], URI_COLUMN, [count], message))

    def weigh(
        self,
        code: str,
        message: str,
        count: int,
        of: int,
    ) -> None:
        """Add a finding if many of the files are concerned, a note if some are."""
        if count > _MANY * of:
            self.find(code, message, count)
        elif count:
            self.notes.append(message)

    def missing(
        self,
        what: str,
        rows: Sequence[int],
        splits: Sequence[str],
        uris: Sequence[str],
        tried: Sequence[str],
    ) -> None:
        """Say for which images of each split a file of annotations is missing.

        It is an error for all without any, or a split (but TEST, which is often published so).

        Args:
            what: the file, in words.
            rows: those of these images.
            splits, uris: of all images.
            tried: where the file of each was looked for.
        """
        if len(rows) == len(splits):
            splits = [""] * len(splits)
        of_splits = Counter(splits)
        lost: dict[str, list[int]] = {}
        for row in rows:
            lost.setdefault(splits[row], []).append(row)
        for split, some in lost.items():
            where = f" of {SPELLINGS.get(split.lower(), split)}" if split else ""
            of = of_splits[split]
            names = some_of([uris[row] for row in some])
            start = f"no {what} for {len(some):,} of {counted(of, 'image')}{where} ({names})"
            message = f"{start}; looked for {tried[some[0]]}"
            if len(some) == of and where != " of TEST":
                self.find("no_annotations", message, len(some))
            else:
                message += "; they are without objects"
                self.weigh("missing_annotations", message, len(some), of)

    def without_image(
        self,
        what: str,
        files: Sequence[str],
        of: int,
    ) -> None:
        """Say which files of annotations are of no image.

        Args:
            of: how many files there are.
        """
        verb = "has" if len(files) == 1 else "have"
        message = f"{len(files):,} of {counted(of, what)} {verb} no image: {some_of(files)}"
        self.weigh("annotations_without_image", message, len(files), of)

    def unused(self, names: Sequence[str], labels: Iterable[str]) -> None:
        """Say which classes no image has."""
        used = {*labels}
        if unused := [name for name in names if name not in used]:
            self.notes.append(unused_words(unused))

    def not_stored(
        self,
        counts: Mapping[str, int],
        remedies: Mapping[str, str],
        of: str = "object",
    ) -> None:
        """Say what of the objects is not stored.

        Args:
            counts: of how many objects each is.
            remedies: how it would be stored, for what can be.
            of: what has it, if not an object.
        """
        parts = []
        for what, count in counts.items():
            remedy = f" ({remedies[what]})" if what in remedies else ""
            parts += [f"{what} of {counted(count, of)}{remedy}"] if count else []
        if parts:
            self.notes.append(f"{NOT_STORED}{', '.join(parts)}")


def some_of(names: Sequence[str]) -> str:
    shown = ", ".join(cut(name) for name in names[:_NAMED])
    return shown + (", …" if len(names) > _NAMED else "")
