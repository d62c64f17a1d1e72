"""Reads photographs out of the formats of others, each as its own documentation shows it.

A reader takes the folder that `peers_writers.py` wrote, ours, or one of single files, and gives
batches of shuffled uint8 images and labels.  Where a package leaves decoding to its user it is
Pillow, whose bilinear resizing is antialiased; `torchvision` and `expert` show what else is done.
"""

from __future__ import annotations

import glob
import io
import pickle
from functools import partial
from typing import Any

import harness
import reading
from reading import BATCH

WORKERS = 2
SHUFFLED = 2000


def decode(data: bytes, size: int) -> Any:
    import numpy as np
    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))


def _files(directory: str, pattern: str) -> list[str]:
    return sorted(glob.glob(f"{directory}/{pattern}"))


def _torch_loader(images: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(images, batch_size=BATCH, num_workers=WORKERS, persistent_workers=True)


def tfds(directory: str, size: int, antialias: bool = False) -> Any:
    """As in reading.py, but never from memory: TFDS caches small splits by default."""
    import tensorflow as tf
    import tensorflow_datasets

    pairs = tensorflow_datasets.builder_from_directory(directory).as_dataset(
        "train",
        shuffle_files=True,
        as_supervised=True,
        read_config=tensorflow_datasets.ReadConfig(try_autocache=False),
    )
    resized = pairs.shuffle(SHUFFLED).map(
        lambda image, label: (reading.resize(image, size, antialias), label),
        tf.data.AUTOTUNE,
        deterministic=False,
    )
    return resized.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def webdataset(directory: str, size: int) -> Any:
    import webdataset

    shards = _files(directory, "train-*.tar")
    images = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(SHUFFLED)
    return _torch_loader(images.to_tuple("jpg", "cls").map(partial(_of_tar, size=size)))


def _of_tar(record: tuple[bytes, bytes], size: int) -> tuple[Any, int]:
    return decode(record[0], size), int(record[1])


def mds(directory: str, size: int) -> Any:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    class Images(StreamingDataset):
        def __getitem__(self, at: int) -> tuple[Any, int]:
            record = super().__getitem__(at)
            return decode(record["image"], size), record["label"]

    clean_stale_shared_memory()
    return _torch_loader(Images(local=f"{directory}/train", shuffle=True, batch_size=BATCH))


def litdata(directory: str, size: int) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset

    class Images(StreamingDataset):
        def __getitem__(self, at: Any) -> tuple[Any, int]:
            record = super().__getitem__(at)
            return decode(record["image"], size), record["label"]

    images = Images(directory, shuffle=True, drop_last=False)
    return StreamingDataLoader(
        images, batch_size=BATCH, num_workers=WORKERS, persistent_workers=True
    )


def grain(directory: str, size: int, processes: int = 0) -> Any:
    """Without an end, and one iterator for all: its worker processes start once."""
    import grain

    source = grain.sources.ArrayRecordDataSource(_files(directory, "train*.array_record"))
    images = grain.MapDataset.source(source).shuffle(seed=0).repeat()
    decoded = images.map(partial(_of_pickle, size=size)).batch(BATCH)
    if not processes:
        return iter(decoded.to_iter_dataset(grain.ReadOptions(num_threads=WORKERS)))
    options = grain.MultiprocessingOptions(num_workers=processes)
    return iter(decoded.to_iter_dataset().mp_prefetch(options))


def _of_pickle(record: bytes, size: int) -> tuple[Any, int]:
    data, label = pickle.loads(record)
    return decode(data, size), label


class _SingleFiles:
    """The photographs of a folder `label/file`, for a `DataLoader`."""

    def __init__(self, folder: str, size: int) -> None:
        self.files = _files(folder, "*/*.jpg")
        names = sorted({path.split("/")[-2] for path in self.files})
        self.labels = [names.index(path.split("/")[-2]) for path in self.files]
        self.size = size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, at: int) -> tuple[Any, int]:
        return self.picture(self.files[at]), self.labels[at]

    def picture(self, path: str) -> Any:
        """uint8 of channels, height, width."""
        raise NotImplementedError


class _ByTorchvision(_SingleFiles):
    def picture(self, path: str) -> Any:
        from torchvision.io import ImageReadMode, decode_jpeg, read_file
        from torchvision.transforms.v2.functional import resize

        pixels = decode_jpeg(read_file(path), ImageReadMode.RGB)
        return resize(pixels, [self.size, self.size], antialias=True)


class _ByExpert(_SingleFiles):
    """libjpeg-turbo at a part of the size where that is enough, and torch's own resizing."""

    def picture(self, path: str) -> Any:
        import simplejpeg
        import torch

        with open(path, "rb") as file:
            data = file.read()
        pixels = simplejpeg.decode_jpeg(data, min_height=self.size, min_width=self.size)
        planes = torch.from_numpy(pixels).permute(2, 0, 1)[None]
        wanted = (self.size, self.size)
        resized = torch.nn.functional.interpolate(planes, wanted, mode="bilinear", antialias=True)
        return resized[0]


class _ChannelsLast:
    """Batches of channels, height, width as views of height, width, channels."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        for images, labels in self.batches:
            yield images.permute(0, 2, 3, 1), labels


def _shuffled_loader(images: Any) -> Any:
    from torch.utils.data import DataLoader

    options = {"batch_size": BATCH, "num_workers": WORKERS, "persistent_workers": True}
    return DataLoader(images, shuffle=True, **options)


def torchvision(folder: str, size: int) -> Any:
    return _ChannelsLast(_shuffled_loader(_ByTorchvision(folder, size)))


def expert(folder: str, size: int) -> Any:
    return _ChannelsLast(_shuffled_loader(_ByExpert(folder, size)))


class _Dali:
    """A pipeline of DALI on the CPU, without an end, of our shards with our index."""

    def __init__(self, directory: str, size: int) -> None:
        from nvidia.dali import fn, pipeline_def, tfrecord, types

        features = {
            "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
        }

        @pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None)
        def pipeline() -> Any:
            found = fn.readers.tfrecord(
                path=_files(directory, "train-*.tfrecord"),
                index_path=_files(directory, "_tfrecorder/index/train-*.idx"),
                features=features,
                random_shuffle=True,
                initial_fill=SHUFFLED,
            )
            images = fn.decoders.image(found["image/encoded"], output_type=types.RGB)
            resized = fn.resize(
                images, size=(size, size), interp_type=types.INTERP_LINEAR, antialias=True
            )
            return resized, found["image/class/label"]

        self.pipeline = pipeline()
        self.pipeline.build()

    def __iter__(self) -> Any:
        while True:
            images, labels = self.pipeline.run()
            yield images.as_array(), labels.as_array()


def dali(directory: str, size: int) -> Any:
    return _Dali(directory, size)


def records(directory: str, size: int) -> Any:
    import tfrecorder

    return _shuffled_loader(tfrecorder.Records(directory, "TRAIN", image_size=size))


def batches(directory: str, size: int) -> Any:
    import tfrecorder

    return tfrecorder.batches(directory, "TRAIN", batch_size=BATCH, image_size=size)


READERS = {
    **reading.READERS,
    **{one.__name__: one for one in (tfds, webdataset, mds, litdata, grain)},
    **{one.__name__: one for one in (torchvision, expert, dali, records, batches)},
}


def read(reader: str, images: int, warm_up: int, **arguments: Any) -> harness.Timed:
    """Read so many images, after so many others."""
    batches = READERS[reader](**arguments)
    reading.take(batches, warm_up)
    return lambda: {"images": reading.take(batches, images)}


def epoch(reader: str, images: int, **arguments: Any) -> harness.Timed:
    """Read every image once, and say what came: the mean of all pixels, and what is amiss."""
    import numpy as np

    def run() -> harness.Numbers:
        count, total, amiss = 0, 0.0, ""
        for batch in READERS[reader](**arguments):
            pixels = np.asarray(batch[0])
            if pixels.dtype != np.uint8 or pixels.shape[1:] != (arguments["size"],) * 2 + (3,):
                amiss = f"batches of {pixels.dtype} {pixels.shape}"
            count += len(pixels)
            total += pixels.mean(dtype=np.float64) * len(pixels)
            if count >= images:
                break
        return {"images": count, "mean": total / count, "amiss": amiss}

    return run
