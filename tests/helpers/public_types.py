"""The types of what calls take and give back: those that docs/api.md names.

The inner law: it knows in which file of the package each stands, so that no test need.
"""

from tfrecorder.exports.card import Card
from tfrecorder.format.summary import Changes
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.result import ConversionResult
from tfrecorder.streaming.stream import StreamResult
from tfrecorder.verification.faults import VerificationReport
from tfrecorder.verification.repair import RepairResult

__all__ = [
    "Card",
    "Changes",
    "ConversionResult",
    "ConvertOptions",
    "RepairResult",
    "StreamResult",
    "VerificationReport",
]
