"""What a trainer of PyTorch would do with our batches: refused before the first one, or told to it.

A trainer that takes a reader as it is knows nothing of us, and we know nothing of it: what it does
is seen on the stack, when it asks for the first batch.  Nothing is imported to find out.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any

from tfrecorder.errors import OptionError
from tfrecorder.options.ranks import Rank

#: Whose `fetch` asks a dataset for what makes a batch.
_FETCH = "torch.utils.data._utils.fetch"

_ACCELERATE = "accelerate.data_loader"

#: What of accelerate reads in one process and gives the others a part of each batch, or reads in
#: each process and keeps every n-th.
_DIVIDE = ("DataLoaderDispatcher", "IterableDatasetShard")


def refuse_trainer(batches: Any, rank: Rank) -> None:
    """Refuse whoever asks for these batches, if it would not use each as it is.

    Args:
        batches: whose first batch is asked for.
        rank: the process whose share they are.

    Raises:
        OptionError: a `DataLoader` would put several together, or divide what is divided already.
    """
    words = "leave the DataLoader out, or give `Records` to Hugging Face's Trainer."
    for frame in _callers():
        name = frame.f_globals.get("__name__")
        if name not in (_ACCELERATE, _FETCH):
            continue  # a frame that is asked for its values keeps them alive, a user's loop too
        asks: Any = frame.f_locals.get("self")
        if name == _FETCH and getattr(asks, "dataset", None) is batches and asks.auto_collation:
            raise OptionError(
                "a DataLoader would put several of these batches together: give it "
                f"`batch_size=None`, or {words}"
            )
        if name == _ACCELERATE and type(asks).__name__ in _DIVIDE and rank.world > 1:
            raise OptionError(
                f"a DataLoader of accelerate would divide again what is divided by {rank}; {words} "
                "Within an `IterableDataset` of your own, read everything: `shard=(0, 1)`."
            )


def numbers_anew(epoch: int, here: int) -> bool:
    """True if accelerate's own count of epochs asks for one below ours, as after a resume.

    It counts the loops over its loader, from 0 in each run.
    """
    if epoch >= here:
        return False
    for frame in _callers():
        if _is_of_accelerate(frame) and frame.f_code.co_name == "__iter__":
            _say_it_numbers_anew()
            return True
    return False


@functools.cache
def _say_it_numbers_anew() -> None:
    logging.getLogger("tfrecorder").warning(
        "accelerate counts the epochs of a run from 0; the order of the records goes on after the "
        "epoch that was loaded, or read last"
    )


@contextlib.contextmanager
def accelerate_told() -> Iterator[Any]:
    """What accelerate knows of an epoch, if it is in use, as of a loader of its own.

    It ends a window of accumulated gradients with the batch that `end_of_dataloader` was set for,
    and `gather_for_metrics` keeps the first `remainder` records of that batch, all for 0.
    Source: https://huggingface.co/docs/accelerate/package_reference/torch_wrappers
    """
    accelerate = sys.modules.get("accelerate")
    loaders = sys.modules.get(_ACCELERATE)
    if accelerate is None or loaders is None or any(map(_is_of_accelerate, _callers())):
        yield SimpleNamespace()  # nobody asks, or its own loader says it
        return
    epoch = loaders.DataLoaderStateMixin()
    epoch.gradient_state = accelerate.state.GradientState()
    epoch.begin()
    try:
        yield epoch
    finally:
        epoch.end()


def _is_of_accelerate(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == _ACCELERATE


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back
