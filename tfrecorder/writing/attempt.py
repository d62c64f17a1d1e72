"""One attempt at a shard, where others may be under way: whose files stand in the end.

A worker that was given up may go on writing for a while, so that two attempts of one shard overlap
on a bucket and finish in either order.  Nearly always both write the same bytes.  Where they do
not, as after a change of a source, the done-record decides:

- A file is put where none stands.  Where one stands with the same CRC32C, all is well.
- Other bytes are replaced only by whoever holds a claim, which is a short note in the place of the
  done-record, put over the generation that was seen there.  The holder looks which generation of
  the file stands, then that the claim is still its own, and puts its bytes over that generation.
  Who takes the claim later puts its files again, so that an upload of the earlier holder fails.
- The done-record is put over the claim, or where no done-record was when the attempt began.

So once a done-record stands, no attempt can claim its shard or replace its files, however late it
comes: it finds the done-record, and takes that for its own.  And an attempt whose claim was taken
away cannot finish: it begins again.  On stores without generations the last writer wins.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable

from tfrecorder import storage
from tfrecorder.dataset.layout import Shard
from tfrecorder.errors import OutputError
from tfrecorder.plan.staging import staged_plan
from tfrecorder.threads import UnwantedError, is_unwanted
from tfrecorder.writing.done import DoneRecord, read_done

#: Times that an attempt begins, each time overtaken by another.
TURNS = 4

#: An attempt that was overtaken waits for the other one: so many times as long as it took itself,
#: and so many seconds more.  Then that one is given up too.
PATIENCE = (2, 10)

#: How often it looks meanwhile whether the other one is done.
LOOKS = 40


class ShardDoneError(Exception):
    """Another attempt has completed the shard: `done` is what it wrote."""

    def __init__(self, done: DoneRecord) -> None:
        super().__init__(done)
        self.done = done


class OvertakenError(Exception):
    """Another attempt claims the shard."""


class Attempt:
    """What an attempt may replace; a claim, as `storage.publish` takes one."""

    def __init__(self, output_dir: str, shard: Shard, plan_digest: str) -> None:
        self._output_dir, self._shard, self._plan_digest = output_dir, shard, plan_digest
        self._lock = threading.Lock()
        self._held = False
        self._generation = 0  # of what stands in the place of the done-record, as far as we know

    def begin(self) -> None:
        """Look whether the shard is done; claim it where an attempt ended on the way.

        Raises:
            ShardDoneError, OvertakenError
        """
        standing = self._look()
        if standing is not None and standing.generation:
            self._claim(standing.generation)

    def look_again(self) -> None:
        """Give up what another attempt has completed meanwhile, where a store keeps no generations.

        Raises:
            ShardDoneError
        """
        if storage.is_local(self._output_dir):
            self._look()

    def is_held(self) -> bool:
        return self._held

    def take(self) -> None:
        with self._lock:  # the files of a shard go up side by side
            standing = self._look()
            if self._held:
                if standing is None or standing.generation != self._generation:
                    raise OvertakenError
            elif standing is not None:
                raise OvertakenError
            else:
                self._claim(0)

    def finish(self, done: DoneRecord) -> DoneRecord:
        """Put the done-record; gives it, or that of an attempt which completed the shard first.

        Raises:
            OvertakenError: another attempt has claimed the shard meanwhile.
        """
        try:
            self._put(done.to_json())
        except storage.OtherStandsError:
            found = self._read_done()
            if found is None:
                raise OvertakenError from None
            return found
        return done

    def _look(self) -> storage.Description | None:
        """What is in the place of the done-record, if it is something else."""
        # Before it is read: what is read is of this generation, or a later one.
        path = os.path.join(self._output_dir, self._shard.done)
        with storage.failing_as(OutputError, path):
            standing = storage.describe(path)
        done = None if standing is None else self._read_done()
        if done is not None:
            raise ShardDoneError(done)
        return standing

    def _claim(self, generation: int) -> None:
        # It may be that of another plan, which has taken the place of ours.
        staged_plan(self._output_dir, self._plan_digest)
        self._generation = generation
        try:
            self._generation = self._put(json.dumps({"claimed": uuid.uuid4().hex}).encode())
        except storage.OtherStandsError:
            raise OvertakenError from None
        self._held = True

    def _put(self, data: bytes) -> int:
        return storage.publish_over(self._output_dir, self._shard.done, data, self._generation)

    def _read_done(self) -> DoneRecord | None:
        return read_done(self._output_dir, self._shard, self._plan_digest)


def settled(
    output_dir: str,
    shard: Shard,
    plan_digest: str,
    write: Callable[[Attempt], DoneRecord],
) -> DoneRecord:
    """The done-record of a shard: of this attempt, or of another that was first.

    Args:
        write: writes the shard and finishes the attempt that it is given.

    Raises:
        OutputError: other attempts have claimed the shard each time.
        UnwantedError: nobody wants the shard any more.
        Whatever else `write` raises.
    """
    for _ in range(TURNS):
        attempt, began = Attempt(output_dir, shard, plan_digest), time.monotonic()
        try:
            attempt.begin()
            return write(attempt)
        except ShardDoneError as other:
            return other.done
        except FileNotFoundError:
            # A commit, or another plan, has removed the temporary files, ours among them.
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
        "other bytes. Wait for its end, then run the same conversion again."
    )
