"""What a dataset keeps of its card: which commit it describes, and the sums of what it lists."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.format.documents import seal, unseal


@dataclass(frozen=True)
class StoredCard:
    """A card as it was written.

    Attributes:
        commit: the number of the commit that it describes.
        files: the SHA-256 of each of its files, by name.
        shards: the CRC32C and the SHA-256 of each shard, by the name of its file.
        stated: what `card.yaml` states, in the fields that TFDS has for it.
    """

    commit: int
    files: dict[str, str]
    shards: dict[str, tuple[int, str]]
    stated: dict[str, object] = field(default_factory=dict)

    def to_json(self) -> bytes:
        return seal(vars(self))


def stored_card(directory: str) -> StoredCard | None:
    """The card of a dataset; None if it has none, or if what is kept of it is damaged."""
    try:
        return StoredCard(**unseal(storage.read_bytes(os.path.join(directory, layout.CARD))))
    except (storage.UnreadableError, ValueError, TypeError):
        return None
