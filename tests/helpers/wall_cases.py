"""What code tries to import, seen in a fresh process where what is forbidden is missing."""

import json
from pathlib import Path

from support import run

TENSORFLOW = ("tensorflow", "keras", "tensorflow_datasets")
BEAM = ("apache_beam",)
HEAVY = (
    *TENSORFLOW,
    *BEAM,
    "torch",
    "google.cloud.storage",
    "google_crc32c",
    "PIL",
    "simplejpeg",
    "tqdm",
    "jinja2",
)

#: The command as a program; in the braces its arguments, as Python writes them.
COMMAND = "import sys; sys.argv = ['tfrecorder', {}]; import runpy; "
COMMAND += "runpy.run_module('tfrecorder', run_name='__main__')"

_WALL = """
import json, sys
import pandas  # which may bring what it likes
forbidden, attempts = {forbidden!r}, []
assert not set(forbidden) & set(sys.modules), "loaded too early to tell"

class Wall:
    def find_spec(self, name, path=None, target=None):
        if any(f"{{name}}.".startswith(f"{{package}}.") for package in forbidden):
            attempts.append(name)
            raise ImportError(f"{{name}} stands behind the wall")

sys.meta_path.insert(0, Wall())
try:
    exec({code!r})
finally:
    open("attempts.json", "w").write(json.dumps(attempts))
"""


def attempts_of(code, forbidden):
    """The forbidden packages that code tries to import in a fresh process, where it fails to."""
    finished = run("-c", _WALL.format(code=code, forbidden=forbidden))
    report = Path("attempts.json")
    attempts = json.loads(report.read_text()) if report.exists() else []
    assert attempts or finished.returncode == 0, finished.stderr
    return attempts
