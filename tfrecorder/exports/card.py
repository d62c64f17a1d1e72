"""`card`: the files that say what a dataset is, for registries, reviews and people."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tfrecorder import storage
from tfrecorder.core.threads import map_at_once
from tfrecorder.display.bars import Stage, is_shown, record_bar
from tfrecorder.display.tables import Report, counted
from tfrecorder.errors import DatasetError, OutputError
from tfrecorder.exports.card_fields import CardFields, read_card_fields
from tfrecorder.exports.croissant import croissant, made_by
from tfrecorder.exports.readme import readme, sheet
from tfrecorder.exports.record_table import as_parquet, record_table
from tfrecorder.format import layout
from tfrecorder.inspection.findings import find
from tfrecorder.inspection.gather import gather
from tfrecorder.options.keywords import CardKeywords, Path, Unpack
from tfrecorder.options.option import takes
from tfrecorder.options.preview import PreviewOptions
from tfrecorder.output.directory import claim
from tfrecorder.reading.commits import all_done, commits, newest_commit
from tfrecorder.reading.info import info
from tfrecorder.reading.stored_card import StoredCard, stored_card
from tfrecorder.reading.stored_records import open_stored
from tfrecorder.writing.tfds import DATASET_NAME

#: Options of `preview` that a card does not have.
NOT_OF_A_CARD = dict.fromkeys(
    ("at", "image", "label"), "leave it out: a card is of the newest commit of our own records"
)

#: Bytes of a file that are hashed at a time.
_PIECE = 2**20


@dataclass(frozen=True)
class Card(Report):
    """What `card` wrote.

    Attributes:
        directory: of the dataset.
        commit: the number of the commit that the card describes.
        files: the names of its files.
        hashed: how many shards were hashed; the sums of the others were kept.
        shards: how many there are.
        findings: what deserves a look, in sentences.
    """

    directory: str
    commit: int
    files: tuple[str, ...]
    hashed: int
    shards: int
    findings: tuple[str, ...]

    def _headline(self) -> str:
        return f"{', '.join(self.files)} in {self.directory}"

    def _notes(self) -> list[str]:
        hashed = f"hashed: {self.hashed:,} of {counted(self.shards, 'shard')}"
        return [f"describes commit {self.commit}", hashed, *self.findings]


@takes(CardKeywords, PreviewOptions)
def card(directory: Path, **options: Unpack[CardKeywords]) -> Card:
    """Write the card of a dataset into its directory: for registries, reviews and people.

    It is `croissant.json` (Croissant 1.1: every shard with its SHA-256, splits, classes, columns,
    statistics, provenance), `records.parquet` (a row for each record, without pixels), and
    `README.md` in the form of the Hugging Face Hub, with `card.jpg`, random pictures.  What only
    people know is taken from `card.yaml` in the directory, if it is there: name, description,
    license, citation, homepage, rai (fields of responsible AI) and croissant (any further
    properties of `croissant.json`).  The next commit puts into `dataset_info.json` what that has a
    field for.

    Commits do not write it again: `info` says when it is older than the dataset, and what removes
    records removes it.  Only shards that were added since are hashed again.

    Args:
        directory: what `convert` wrote.
        **options: what its pictures and findings look at, as for `preview`.

    Raises:
        OptionError: an argument, or a field of `card.yaml`, is wrong.
        OutputError: a file of its names is there that no card wrote or that was changed since, or
            another operation writes there.
        DatasetError: there is no whole dataset written by this package.

    Example:
        >>> tfrecorder.card("out")  # doctest: +SKIP
    """
    chosen = PreviewOptions.of(options, NOT_OF_A_CARD)
    where = storage.given_path(directory)
    with storage.failing_as(DatasetError, where):
        if newest_commit(where) is None:
            raise DatasetError(f"{where} is not a finished dataset that tfrecorder wrote.")
        kept = stored_card(where)
        _refuse_others(where, kept.files if kept else {})
        fields = read_card_fields(where)
    with claim(where), record_bar(is_shown(chosen.progress)) as stage:
        return _write(where, kept, fields, chosen, stage)


def _write(
    where: str, kept: StoredCard | None, fields: CardFields, options: PreviewOptions, stage: Stage
) -> Card:
    newest = newest_commit(where)
    assert newest is not None
    stored = open_stored(where, newest.number)
    gathered = gather(stored, info(where, newest.number), options, stage)
    done = {shard.file: record for shard, record in all_done(commits(where, newest)).items()}
    # Names may come again, for other bytes.
    before = (kept.shards if kept else {}).items()
    same = {name: sums for name, sums in before if name in done and done[name].crc32c == sums[0]}
    others = [name for name in done if name not in same]
    hashes = zip(others, _sha256s(where, others), strict=True)
    sums = same | {name: (done[name].crc32c, sha256) for name, sha256 in hashes}
    rows = record_table(stored)
    records = as_parquet(rows)
    listed = {name: (record.bytes, sums[name][1]) for name, record in done.items()}
    listed[layout.RECORDS] = len(records), hashlib.sha256(records).hexdigest()
    own = str(newest.info["name"])
    folder = os.path.basename(storage.absolute(where).rstrip("/"))
    name = fields.name or (own if own != DATASET_NAME else folder)
    provenance = made_by(newest.number, newest.plan.kind.value, newest.digest)
    stated = {"version": newest.info["version"], "prov:wasGeneratedBy": provenance}
    document = croissant(gathered.info, fields, name, rows.schema, listed, stated)
    findings = ["".join(text for text, _ in remark.parts) for remark in find(gathered)]
    pictures = sheet(gathered)
    files = {
        layout.CROISSANT: (json.dumps(document, indent=2, default=str) + "\n").encode(),
        layout.README: readme(gathered, fields, name, findings, bool(pictures)).encode(),
        **({layout.PICTURES: pictures} if pictures else {}),
        layout.RECORDS: records,
    }
    of_files = {file: hashlib.sha256(data).hexdigest() for file, data in files.items()}
    made = StoredCard(newest.number, of_files, sums, fields.for_tfds)
    now = newest_commit(where)
    if now is None or now.digest != newest.digest:  # on a bucket, where nothing is locked
        raise OutputError(f"{where} was changed while its card was made; make it again.")
    # An interruption leaves no file that `card.json` does not list, or lists with another sum.
    storage.remove_files(where, kept.files if kept else ())
    for file, data in {layout.CARD: made.to_json(), **files}.items():
        storage.publish_bytes(where, file, data)
    return Card(where, newest.number, (*made.files,), len(others), len(done), (*findings,))


def _refuse_others(where: str, written: dict[str, str]) -> None:
    """Raise an OutputError if a file that the card would replace is not as a card wrote it."""
    for name in sorted({*storage.names(where)} & {*layout.CARD_FILES}):
        path = os.path.join(where, name)
        if name not in written:
            raise OutputError(f"{path} is there, and no card wrote it; move it away.")
        is_text = name in (layout.README, layout.CROISSANT)
        if is_text and _sha256s(where, [name]) != [written[name]]:
            raise OutputError(
                f"{path} was changed since it was written; move it away, and state what it says "
                f"in {layout.CARD_YAML}."
            )


def _sha256s(where: str, names: Sequence[str]) -> list[str]:
    """The SHA-256 of each of these files of a dataset."""

    def sha256(name: str) -> str:
        digest = hashlib.sha256()
        with storage.open_seekable(os.path.join(where, name)) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
        return digest.hexdigest()

    return map_at_once(sha256, names, storage.REMOTE_THREADS)
