"""`python -m tfrecorder`."""

from tfrecorder.cli import main

main()
