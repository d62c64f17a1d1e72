"""Does what would be published work where nothing else is?

    python scripts/smoke.py              # with the oldest and the newest Python found
    python scripts/smoke.py --all        # with each from 3.10 to 3.13
    python scripts/smoke.py 3.12         # with these

Builds the sdist, the wheel out of the sdist, both twice, whose wheels must be the same bytes, and
installs the wheel into an empty environment of
each Python, in a folder that has the bundled photographs and nothing of the source.  There they are
converted, verified and read without any extra, by the command line and by Python; then, with the
extra `all`, converted once more, to the same bytes, and loaded.  Needs the package `build`; only
the standard library with it.  The environments are removed again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MINORS = range(10, 14)

#: The time that a wheel gives to all its files, in s since 1970: the first that a ZIP can hold.
EPOCH = "315532800"

#: What a user does first, without any extra; each line of it fails loudly.
FIRST_USE = """
import pathlib, sys
import pandas as pd, tfrecorder
assert "tensorflow" not in sys.modules and "apache_beam" not in sys.modules
assert pathlib.Path(tfrecorder.__file__).is_relative_to(sys.prefix), tfrecorder.__file__
df = pd.read_csv("photos.csv")
assert df.tensorflow.validate().empty
result = df.tensorflow.to_tfrecord(output_dir="by-frame", progress=False)
assert result.records == 52 and not result.rejects, result
assert tfrecorder.verify("by-frame").ok
(images, labels), *_ = tfrecorder.batches("by-frame", "TRAIN", batch_size=8, image_size=64)
assert images.shape == (8, 64, 64, 3), images.shape
try:
    tfrecorder.load("by-frame", "TRAIN")
except tfrecorder.errors.PackageError as error:
    assert 'pip install "tfrecorder-images[tensorflow]"' in str(error), error
else:
    raise AssertionError("TensorFlow is here")
"""

#: The same with the extra `all`.
WITH_ALL = """
import pandas as pd, tfrecorder, apache_beam
result = pd.read_csv("photos.csv").tensorflow.to_tfrecord(output_dir="by-beam", progress=False)
assert result.records == 52 and not result.rejects, result
images, labels = next(iter(tfrecorder.load("by-beam", "TRAIN", batch_size=8, image_size=64)))
assert images.shape == (8, 64, 64, 3), images.shape
"""

#: What is done with each of two installations, in turn: of the wheel alone, and with an extra.
STEPS = {
    "": (
        ("tfrecorder", "--version"),
        ("tfrecorder", "validate", "photos.csv"),
        ("tfrecorder", "convert", "photos.csv", "by-command"),
        ("tfrecorder", "verify", "by-command"),
        ("tfrecorder", "info", "by-command"),
        ("tfrecorder", "preview", "by-command", "--html", "preview.html"),
        ("python", "-c", FIRST_USE),
        ("diff", "--recursive", "--exclude", "_tfrecorder", "by-command", "by-frame"),
    ),
    "[all]": (
        ("tfrecorder", "verify", "by-command", "--decode"),
        ("python", "-c", WITH_ALL),
        ("diff", "--recursive", "--exclude", "_tfrecorder", "by-command", "by-beam"),
    ),
}


def pythons() -> dict[str, Path]:
    """The interpreters of this machine, on the PATH and of pyenv, by "3.MINOR"."""
    found = {}
    for minor in MINORS:
        installed = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        on_path = shutil.which(f"python3.{minor}")
        # A shim of pyenv is on the PATH also where its version is not chosen; it then fails.
        for path in [*installed, *([Path(on_path)] if on_path else [])]:
            if subprocess.run([path, "-c", "import venv"], capture_output=True).returncode == 0:
                found[f"3.{minor}"] = path
                break
    return found


def run(*command: str | Path, cwd: Path, **variables: str) -> None:
    """Run a command; where it fails, or pip complains, show what it wrote and end."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode or ("pip" in command and "ERROR: " in done.stdout):
        shown = " ".join(str(word) for word in command)
        sys.exit(f"{done.stdout}\nFAILED with exit code {done.returncode}: {shown}")


def build(folder: Path) -> Path:
    """The wheel, made from the sdist, so that the sdist is known to be whole."""
    wheels = []
    for built in (folder / "again", folder):
        command = (sys.executable, "-m", "build", "--outdir", built, ROOT)
        run(*command, cwd=folder, SOURCE_DATE_EPOCH=EPOCH)
        wheels += [path.read_bytes() for path in built.glob("*.whl")]
    if wheels[0] != wheels[1]:
        sys.exit("the wheel, built twice, differs")
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "README.md", "setup.py", "pyproject.toml"}
    missing = wanted - names
    if missing:
        sys.exit(f"the sdist lacks {sorted(missing)}")
    files = filter(Path.is_file, (ROOT / "tfrecorder").rglob("*"))
    ours = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    if missing := ours - packed:
        sys.exit(f"the wheel lacks {sorted(missing)}")
    if more := {name for name in packed if not name.startswith("tfrecorder")}:
        sys.exit(f"the wheel would install {sorted(more)}")
    print(f"{sdist.name} {sdist.stat().st_size:,} bytes, {wheel.name} {wheel.stat().st_size:,}")
    return wheel


def try_out(version: str, python: Path, wheel: Path, folder: Path) -> None:
    """Install the wheel into an empty environment and use it; the folder is removed."""
    started = time.monotonic()
    venv, work = folder / "venv", folder / "work"
    run(python, "-m", "venv", venv, cwd=folder)
    work.mkdir()
    shutil.copy(ROOT / "samples/photos.csv", work)
    shutil.copytree(ROOT / "samples/photos", work / "photos")
    path = f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for extra, commands in STEPS.items():
        pip = (venv / "bin/python", "-m", "pip")
        run(*pip, "install", "--quiet", "--no-compile", f"{wheel}{extra}", cwd=folder)
        run(*pip, "check", cwd=folder)
        for name, *arguments in commands:
            program = venv / "bin" / name
            program = program if program.exists() else name
            run(program, *arguments, cwd=work, PATH=path, PYTHONPATH="")
    shutil.rmtree(folder)
    print(f"Python {version} works, in {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", metavar="3.N", help="which Pythons")
    parser.add_argument("--all", action="store_true", help="each that this machine has")
    chosen = parser.parse_args()

    found = pythons()
    if not found:
        sys.exit(f"no Python from 3.{MINORS[0]} to 3.{MINORS[-1]} found")
    if lacking := [version for version in chosen.versions if version not in found]:
        sys.exit(f"no Python {', '.join(lacking)} here; there are {', '.join(found)}")
    ends = dict.fromkeys([next(iter(found)), list(found)[-1]])
    versions = chosen.versions or list(found if chosen.all else ends)
    with tempfile.TemporaryDirectory(prefix="tfrecorder-smoke-") as name:
        folder = Path(name)
        wheel = build(folder)
        for version in versions:
            place = folder / version
            place.mkdir()
            try_out(version, found[version], wheel, place)


if __name__ == "__main__":
    main()
