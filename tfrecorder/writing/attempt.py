"""One attempt at a shard, while others may be running: whose files are kept in the end.

A worker that was given up may still write for a while, so that two attempts at one shard overlap on
a bucket and finish in either order.  Nearly always both write the same bytes.  If they do not, for
example after a change of a source, the done-record decides:

- A file is put where there is none.  If there is one with the same CRC32C, nothing needs doing.
- Other bytes are replaced only by the attempt that holds a claim.  A claim is a short note in the
  place of the done-record, put over the version that was seen there.  The holder looks which
  version of the file is there, then whether the claim is still its own, and puts its bytes over
  that version.  An attempt that takes the claim later puts its files again, so that an upload
  of the earlier holder fails.
- The done-record is put over the claim, or where no done-record was when the attempt began.

So once there is a done-record, no attempt can claim its shard or replace its files, however late it
comes: it finds the done-record and takes that for its own.  And an attempt whose claim was taken
away cannot finish: it starts again.  On stores without versions the last writer wins.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from tfrecorder import storage
from tfrecorder.core.threads import UnwantedError, is_unwanted
from tfrecorder.errors import OutputError
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.layout import Shard
from tfrecorder.output.staging import committed_done, read_done, staged_plan

#: How many times an attempt starts, each time overtaken by another.
TURNS = 4

#: An attempt that was overtaken waits for the other one: this many times as long as it took itself,
#: and this many seconds more.  Then it gives up the other one too.
PATIENCE = (2, 10)

#: How often it checks in the meantime whether the other one is done.
LOOKS = 40


class ShardDoneError(Exception):
    """Another attempt has completed the shard: `done` is what it wrote."""

    def __init__(self, done: DoneRecord) -> None:
        super().__init__(done)
        self.done = done


class OvertakenError(Exception):
    """Another attempt claims the shard."""


@dataclass
class Attempt:
    """What an attempt may replace; a claim as `storage.publish` takes it."""

    output_dir: str
    shard: Shard
    plan_digest: str
    _held: bool = False
    _version: str = ""  # of what is in the done-record's place, as far as we know

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Look whether the shard is done; claim it if an attempt ended on the way.

        Without this look what is done is written once more, and found to be there (`finish`).

        Raises:
            ShardDoneError, OvertakenError
        """
        standing = self._look()
        if standing is not None and standing.version:
            self._claim(standing.version)

    def look_again(self) -> None:
        """Give up if another attempt has completed the shard, on a store without versions.

        Raises:
            ShardDoneError
        """
        if storage.is_local(self.output_dir):
            self._look()
            self._look_at_commit()

    def is_held(self) -> bool:
        return self._held

    def take(self) -> None:
        with self._lock:  # the files of a shard are uploaded in parallel
            standing = self._look()
            if self._held:
                if standing is None or standing.version != self._version:
                    raise OvertakenError
            elif standing is not None:
                raise OvertakenError
            else:
                self._claim("")

    def finish(self, done: DoneRecord) -> DoneRecord:
        """Put the done-record; return it, or that of an attempt that completed the shard first.

        Raises:
            OvertakenError: another attempt has claimed the shard in the meantime.
        """
        try:
            self._put(done.to_json())
        except storage.OtherStandsError:
            if (other := self._read_done()) is None:
                raise OvertakenError from None
            return other
        return done

    def _look(self) -> storage.Description | None:
        """What is in the place of the done-record, if it is something else."""
        # Take it before reading: what is read is of this version, or a later one.
        path = os.path.join(self.output_dir, self.shard.done)
        with storage.failing_as(OutputError, path):
            standing = storage.describe(path)
        done = None if standing is None else self._read_done()
        if done is not None:
            raise ShardDoneError(done)
        return standing

    def _look_at_commit(self) -> None:
        """Give up if the shard is committed, whose done-record went then."""
        done = committed_done(self.output_dir, self.plan_digest).get(self.shard)
        if done is not None:
            raise ShardDoneError(done)

    def _claim(self, version: str) -> None:
        self._look_at_commit()
        # It may belong to another plan, which has replaced ours.
        staged_plan(self.output_dir, self.plan_digest)
        self._version = version
        try:
            self._version = self._put(json.dumps({"claimed": uuid.uuid4().hex}).encode())
        except storage.OtherStandsError:
            raise OvertakenError from None
        self._held = True

    def _put(self, data: bytes) -> str:
        # A done-record without its bytes counts as none.
        return storage.publish_over(
            self.output_dir,
            self.shard.done,
            data,
            self._version,
            lasting=False,
        )

    def _read_done(self) -> DoneRecord | None:
        return read_done(self.output_dir, self.shard, self.plan_digest)


def settled(
    output_dir: str,
    shard: Shard,
    plan_digest: str,
    write: Callable[[Attempt], DoneRecord],
    is_new: bool = False,
) -> DoneRecord:
    """The done-record of a shard: from this attempt, or from another that was first.

    Args:
        write: writes the shard and finishes the attempt it is given.
        is_new: no attempt was there a moment ago.

    Raises:
        OutputError: other attempts have claimed the shard each time.
        UnwantedError: nobody wants the shard any more.
        Anything else that `write` raises.
    """
    for turn in range(TURNS):
        attempt = Attempt(output_dir, shard, plan_digest)
        began = time.monotonic()
        try:
            if turn or not is_new:
                attempt.begin()
            return write(attempt)
        except ShardDoneError as other:
            return other.done
        except FileNotFoundError:
            # A commit, or another plan, has removed the temporary files, including ours.
            if shard in (committed := committed_done(output_dir, plan_digest)):
                return committed[shard]
            staged_plan(output_dir, plan_digest)
            if (done := read_done(output_dir, shard, plan_digest)) is None:
                raise
            return done
        except OvertakenError:
            took = time.monotonic() - began
        for _ in range(LOOKS):
            if is_unwanted():
                raise UnwantedError
            time.sleep((PATIENCE[0] * took + PATIENCE[1]) / LOOKS)
            if (done := read_done(output_dir, shard, plan_digest)) is not None:
                return done
    raise OutputError(
        f"{output_dir}: {shard.file} is being written by another conversion at the same time, with "
        "other bytes. Wait until it ends, then run the same conversion again."
    )
