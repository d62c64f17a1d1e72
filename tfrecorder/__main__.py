"""`python -m tfrecorder`."""

from tfrecorder.cli.main import main

main()
