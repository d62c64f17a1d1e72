"""A command as a message shows it, to be copied into a shell."""

from __future__ import annotations

import shlex


def command(name: str, *arguments: str) -> str:
    """A command of ours with its arguments, quoted where a shell needs it.

    >>> command("verify", "my data"), command("repair", "gs://bucket/out")
    ("tfrecorder verify 'my data'", 'tfrecorder repair gs://bucket/out')
    """
    return shlex.join(["tfrecorder", name, *arguments])
