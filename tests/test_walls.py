"""The walls between writing and reading: who may import TensorFlow, and who Apache Beam.

Each wall is proved twice: by running the code in a fresh process in which the forbidden packages
cannot be imported, and by reading every import statement, also those inside functions.  The tests
named `..._can_fail` prove the proofs.
"""

import ast
import json
from pathlib import Path

import pytest
from support import CSV, run

import tfrecorder

PACKAGE = Path(tfrecorder.__file__).parent

TENSORFLOW = ("tensorflow", "keras", "tensorflow_datasets")
BEAM = ("apache_beam",)
HEAVY = (
    *TENSORFLOW,
    *BEAM,
    "google.cloud.storage",
    "google_crc32c",
    "PIL",
    "simplejpeg",
    "tqdm",
    "filelock",
)

CONTRACT = ("schema", "metadata", "layout", "storage", "labels", "errors")

# ---------------------------------------------------------------------------------------------
# In a fresh process.

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


CONVERT = f"import tfrecorder; tfrecorder.convert({str(CSV)!r}, 'out', progress=False)"
COMMAND = "import sys; sys.argv = ['tfrecorder', {}]; import runpy; "
COMMAND += "runpy.run_module('tfrecorder', run_name='__main__')"


def test_importing_the_package_loads_nothing_heavy():
    assert attempts_of("import tfrecorder; tfrecorder.ConvertOptions", (*HEAVY, "click")) == []


@pytest.mark.parametrize("arguments", ["'--help'", "'convert', '--help'", "'validate', '--help'"])
def test_help_loads_nothing_heavy(arguments):
    assert attempts_of(COMMAND.format(arguments), HEAVY) == []


def test_validation_loads_neither_tensorflow_nor_beam():
    code = f"import tfrecorder; tfrecorder.validate({str(CSV)!r}, check_images=True)"
    assert attempts_of(code, (*TENSORFLOW, *BEAM)) == []


def test_a_conversion_goes_through_without_tensorflow():
    assert attempts_of(CONVERT, TENSORFLOW) == []
    assert Path("out/dataset_info.json").exists()


def test_reading_goes_through_without_beam(dataset):
    code = f"import tfrecorder; next(iter(tfrecorder.load({str(dataset)!r})['TRAIN']))"
    assert attempts_of(code, BEAM) == []


@pytest.mark.parametrize("module", CONTRACT)
def test_the_contract_between_them_loads_neither(module):
    assert attempts_of(f"import tfrecorder.{module}", (*TENSORFLOW, *BEAM)) == []


@pytest.mark.parametrize(
    "code",
    [
        "import tensorflow",
        "from tensorflow.io import gfile",
        "import importlib; importlib.import_module('tensorflow.io')",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import tensorflow",
        "import tfrecorder.loading.load",
    ],
)
def test_the_proof_in_a_fresh_process_can_fail(code):
    assert attempts_of(code, TENSORFLOW)[0].startswith("tensorflow")


def test_a_conversion_needs_beam_and_so_the_proof_can_fail():
    assert attempts_of(CONVERT, BEAM)[0] == "apache_beam"


# ---------------------------------------------------------------------------------------------
# In the text.

#: The package's doors: they import what is called for inside their functions.
DOORS = ("__init__", "__main__", "accessor", "cli")


def imports_of(path):
    """The dotted names that a module imports anywhere in its text."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def modules_of(package):
    """Every module of a package by its dotted name, without the package's own: its path."""
    paths = {path.relative_to(package).with_suffix(""): path for path in package.rglob("*.py")}
    return {".".join(name.parts): path for name, path in paths.items()}


def users_of(package, library):
    """The modules of a package that import a library themselves."""
    return {
        module
        for module, path in modules_of(package).items()
        if any(name.partition(".")[0] == library for name in imports_of(path))
    }


def reached_from(package, module):
    """A module of a package and all others that it imports, directly or through one another."""
    modules, reached, todo = modules_of(package), set(), [module]
    while todo:
        name = todo.pop()
        if name in reached or name in DOORS or name not in modules:
            continue
        reached.add(name)
        own = [n.split(".")[1:] for n in imports_of(modules[name]) if n.startswith(package.name)]
        # "a.b.name" may be a name of the module a.b, or a module itself.
        todo += [".".join(parts[:depth]) for parts in own for depth in range(1, len(parts) + 1)]
    return reached


def crossings(package, module, library):
    """The modules that import a library and that a module reaches."""
    return reached_from(package, module) & users_of(package, library)


WRITING = ("conversion", "pipeline", "launch", "validation", "checking.repairing")


@pytest.mark.parametrize("module", WRITING)
def test_nothing_that_writes_imports_tensorflow(module):
    assert not crossings(PACKAGE, module, "tensorflow")


def test_nothing_that_reads_imports_beam():
    assert not crossings(PACKAGE, "reading.load", "apache_beam")


@pytest.mark.parametrize("module", CONTRACT)
@pytest.mark.parametrize("library", ["tensorflow", "apache_beam"])
def test_the_contract_imports_neither(module, library):
    assert not crossings(PACKAGE, module, library)


def test_beam_is_for_the_pipeline_and_its_launchers_alone():
    launchers = {"launch", "runners", "beam_waits", "local_worker", "dataflow.launcher"}
    assert users_of(PACKAGE, "apache_beam") == {"pipeline", *launchers}


@pytest.mark.parametrize("library", ["tensorflow", "apache_beam"])
def test_to_follow_a_conversion_takes_neither(library):
    assert not crossings(PACKAGE, "following", library)


@pytest.mark.parametrize("door", DOORS)
def test_the_doors_import_neither(door):
    assert door not in users_of(PACKAGE, "tensorflow") | users_of(PACKAGE, "apache_beam")


@pytest.mark.parametrize(
    "crossing",
    [
        "import tensorflow as tf",
        "def late():\n    from tensorflow.io import gfile",
        "from tiny.helper import something",
        "from tiny import helper",
        "import tiny.helper",
    ],
)
def test_the_proof_in_the_text_can_fail(tmp_path, crossing):
    package = tmp_path / "tiny"
    package.mkdir()
    (package / "writer.py").write_text("import json\nfrom tiny import between\n")
    (package / "helper.py").write_text("if True:\n    import tensorflow\n")
    (package / "between.py").write_text("import os\n")
    assert not crossings(package, "writer", "tensorflow")
    (package / "between.py").write_text(f"import os\n{crossing}\n")
    assert crossings(package, "writer", "tensorflow")
