"""What a launch on Dataflow stages for its workers, and whether they can live by it.

The inner law: the wheels and options of a worker, without a service that starts one.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest
from helpers.public_types import ConvertOptions
from support import run

import tfrecorder
from services.dataflow import image
from services.dataflow.cases import OUT, SOURCE, settings
from services.dataflow.endpoint import Dataflow
from services.gcs.control import Gcs
from tfrecorder.errors import RunnerError
from tfrecorder.format.plan import Layout, Plan, PlannedRows
from tfrecorder.runners.dataflow import launcher
from tfrecorder.runners.dataflow.launcher import Settings
from tfrecorder.runners.dataflow.wheels import stage_wheels
from tfrecorder.schema.fields import fields_of
from tfrecorder.schema.kinds import DEFAULT_SCHEMA

pytest_plugins = ["services.gcs.fixtures", "services.dataflow.fixtures"]


def staged(bucket: Gcs) -> dict[str, str]:
    """What each launch uploaded for its workers to install, by name, with its digest."""
    names = [name for name in bucket.names("gs://bkt/tfrecorder-staging/") if name.endswith(".whl")]
    return {
        name.rpartition("/")[2]: hashlib.sha256(bucket.get(f"gs://bkt/{name}")).hexdigest()
        for name in names
    }


LAUNCH = """
    import tfrecorder
    session = open(__file__) if "__file__" in globals() else None   # what cannot be pickled
    job = tfrecorder.convert({source!r}, {out!r}, **{options!r})
    print(tfrecorder.__file__, job.job_id)
"""


@pytest.mark.slow
def test_a_launch_is_the_same_from_an_installed_wheel_a_script_and_a_notebook(
    bucket: Gcs, dataflow: Dataflow, tmp_path: Path
) -> None:
    dataflow.runs = False
    options = settings(dataflow)
    [ours] = [path for path in stage_wheels(str(tmp_path), "x86_64") if "tfrecorder-" in path]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(tmp_path / "installed"), ours], check=True)

    tfrecorder.convert(SOURCE, "gs://bkt/1", **options)  # from this module, an editable install
    here = staged(bucket)
    assert {"simplejpeg", "tfrecorder"} <= {name.partition("-")[0] for name in here}

    script = tmp_path / "script.py"
    code = textwrap.dedent(LAUNCH.format(source=SOURCE, out="gs://bkt/2", options=options))
    script.write_text(code)
    installed = {"PYTHONPATH": str(tmp_path / "installed")}
    finished = run(script, env={**os.environ, **installed})
    assert finished.returncode == 0, finished.stderr
    assert str(tmp_path / "installed") in finished.stdout
    assert staged(bucket) == here

    notebook(code.replace("bkt/2", "bkt/3"))
    assert staged(bucket) == here
    assert len(dataflow.jobs) == 3


def notebook(code: str) -> None:
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(code)]
    NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=300).execute()


def test_our_wheel_declares_nothing_to_install(tmp_path: Path) -> None:
    [path] = [path for path in stage_wheels(str(tmp_path), "x86_64") if "tfrecorder-" in path]
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        [metadata] = [name for name in names if name.endswith("METADATA")]
        assert "Requires" not in wheel.read(metadata).decode()
    package = Path(tfrecorder.__file__).parent
    modules = {f"tfrecorder/{one.relative_to(package)}" for one in package.rglob("*.py")}
    assert modules <= set(names)
    assert not any("__pycache__" in name for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_workers_get_simplejpeg_for_their_own_platform(tmp_path: Path, machine: str) -> None:
    [path] = [path for path in stage_wheels(str(tmp_path), machine) if "simplejpeg-" in path]
    assert path.endswith(f"{machine}.whl")
    with zipfile.ZipFile(path) as wheel:
        [library] = [name for name in wheel.namelist() if name.endswith(".so")]
    assert machine in library
    assert f"cpython-{sys.version_info.major}{sys.version_info.minor}-" in library


@pytest.mark.slow
def test_what_draws_masks_and_reads_heic_goes_with_the_job(tmp_path: Path) -> None:
    libraries = {"pycocotools": "pycocotools/_mask", "pillow_heif": "_pillow_heif"}
    for name in libraries:
        pytest.importorskip(name)
    paths = stage_wheels(str(tmp_path), platform.machine(), extras=list(libraries))
    names = [Path(path).name.partition("-")[0] for path in paths]
    assert names == ["simplejpeg", *libraries, "tfrecorder"]
    for path, library in zip(paths[1:], libraries.values(), strict=False):
        with zipfile.ZipFile(path) as wheel:
            assert any(name.startswith(library) for name in wheel.namelist())


def test_a_simplejpeg_that_is_given_is_taken(tmp_path: Path) -> None:
    [path] = stage_wheels(str(tmp_path), "aarch64", ["/mirror/simplejpeg-1.9.0-cp311.whl"])
    assert "tfrecorder-" in path


@pytest.mark.slow
def test_a_simplejpeg_that_cannot_be_had_is_told_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(RunnerError, match=r"Linux aarch64.*pip download.*extra_package"):
        stage_wheels(str(tmp_path), "aarch64")


def test_a_simplejpeg_of_which_files_are_missing_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slim images lose what nobody imports; without a network, too, the message says so."""
    found = importlib.metadata.distribution("simplejpeg")
    slim = tmp_path / "site" / f"simplejpeg-{found.version}.dist-info"
    slim.mkdir(parents=True)
    for name in ("METADATA", "WHEEL"):  # without RECORD, the list of files
        (slim / name).write_text(found.read_text(name) or "")
    monkeypatch.syspath_prepend(slim.parent)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(RunnerError, match=rf"Linux {platform.machine()}.*pip download"):
        stage_wheels(str(tmp_path), platform.machine())


def is_for_types(node: ast.stmt) -> bool:
    """True for imports that only a type checker sees."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imported_by_workers() -> set[str]:
    """Top-level packages that a worker imports, at import or within a function."""
    package = Path(tfrecorder.__file__).parent
    code = "import sys; before = set(sys.modules); import tfrecorder.writing.pipeline; "
    code += "print(*[m.partition('.')[2].replace('.', '/') for m in set(sys.modules) - before "
    code += "if m.startswith('tfrecorder.')])"
    loaded = [package / f"{name}.py" for name in run("-c", code).stdout.split()]
    loaded += [*package.glob("stores/*.py"), *package.glob("images/*.py")]
    found = set()
    for path in filter(Path.is_file, loaded):
        tree = ast.parse(path.read_text())
        tree.body = [one for one in tree.body if not is_for_types(one)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"tfrecorder"}


@pytest.mark.slow
def test_what_workers_import_is_in_the_stock_image() -> None:
    imported = imported_by_workers()
    assert {"pandas", "pyarrow", "PIL", "google_crc32c", "apache_beam"} <= imported
    stock = image.stock_distributions()
    bring = importlib.metadata.packages_distributions()
    missing = {
        name
        for name in imported - {"apache_beam", "simplejpeg", "google"}
        if not any(image.normal(one) in stock for one in bring[name])
    }
    # These are imported only where they are needed: for stores other than gs://, whose packages the
    # user names, for a bar, which no worker shows, and by the extras, which go with the job.
    assert missing <= {"fsspec", "tqdm", "pycocotools", "pillow_heif"}
    assert {"google-cloud-storage", "google-api-core", "google-auth", "requests"} <= set(stock)


@pytest.mark.slow
def test_the_workers_environment_hides_what_the_image_lacks(
    stock_image: Path, tmp_path: Path
) -> None:
    python = image.start(stock_image, tmp_path / "environment")
    code = """
        import importlib.util as u, json, apache_beam, pandas, pyarrow, PIL, google.cloud.storage
        names = ["tensorflow", "tfrecorder", "simplejpeg", "keras", "fsspec"]
        print(json.dumps([pandas.__version__, [n for n in names if u.find_spec(n)]]))
    """
    asked = [str(python), "-I", "-c", textwrap.dedent(code)]
    told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    version, found = json.loads(told)
    assert image.stock_distributions()["pandas"].contains(version), "Beam's, not ours"
    assert found == []


def test_nothing_of_the_session_is_pickled() -> None:
    from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions

    options = ConvertOptions(**settings())
    flags = launcher.flags_of(OUT, options, Settings.of(OUT, options))
    # Beam's default is None, of which it makes True where the service is not on this machine.
    assert PipelineOptions(flags).view_as(SetupOptions).save_main_session is False


@pytest.mark.slow
def test_a_million_rows_launch_like_ten(bucket: Gcs, dataflow: Dataflow) -> None:
    dataflow.runs = False
    many = {"TRAIN": 800_000, "VALIDATION": 100_000, "TEST": 100_000}
    shards = {"TRAIN": 597, "VALIDATION": 75, "TEST": 75}
    plan = Plan(
        rows=PlannedRows(
            count=1_000_000,
            in_source=1_000_000,
            statistics={},
            base="gs://bkt/data",
            fingerprint="f" * 64,
        ),
        layout=Layout(many, shards),
        fields=fields_of(DEFAULT_SCHEMA),
        options={},
    )
    options = ConvertOptions(**settings(dataflow))
    started = time.process_time()
    job = launcher.launch(plan, OUT, options)
    assert time.process_time() - started < 5
    asked = dataflow.jobs[job.job_id]
    assert len(bucket.get(asked.options()["pipelineUrl"])) < 200_000
    assert len(json.dumps(asked.asked)) < 200_000
