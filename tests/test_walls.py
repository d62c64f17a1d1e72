"""The walls between writing and reading: who may import TensorFlow, and who Apache Beam.

Each wall is proved twice: by running the code in a fresh process in which the forbidden packages
cannot be imported, and by import-linter, which reads every import statement, also those inside
functions.  Other tests break what is proved, and see the proofs fail.

The inner law: which folder imports what.
"""

import re
import shutil
from pathlib import Path

import pytest
from helpers.inner_names import inner_names, private_names
from helpers.wall_cases import BEAM, COMMAND, HEAVY, TENSORFLOW, attempts_of
from support import CSV, run, slow_cases

import tfrecorder

PACKAGE = Path(tfrecorder.__file__).parent

CONTRACT = (
    "schema.keys",
    "schema.labels",
    "format.layout",
    "format.documents",
    "storage",
    "errors",
)

# ---------------------------------------------------------------------------------------------
# In a fresh process.

CONVERT = f"import tfrecorder; tfrecorder.convert({str(CSV)!r}, 'out', progress=False)"


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy():
    assert attempts_of("import tfrecorder; tfrecorder.schema.Image", (*HEAVY, "click")) == []


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["'--help'", "'convert', '--help'", "'validate', '--help'"])
def test_help_loads_nothing_heavy(arguments):
    assert attempts_of(COMMAND.format(arguments), HEAVY) == []


@pytest.mark.slow
def test_validation_loads_neither_tensorflow_nor_beam():
    code = f"import tfrecorder; tfrecorder.validate({str(CSV)!r}, check_images=True)"
    assert attempts_of(code, (*TENSORFLOW, *BEAM)) == []


@pytest.mark.slow
def test_a_conversion_goes_through_without_tensorflow():
    assert attempts_of(CONVERT, TENSORFLOW) == []
    assert Path("out/dataset_info.json").exists()


@pytest.mark.slow
def test_a_conversion_loads_nothing_that_only_others_need():
    unneeded = ("conversion.changed_rows", "conversion.dry_run", "conversion.existing_rows")
    unneeded += ("reading.info", "reading.open")
    assert attempts_of(CONVERT, [f"tfrecorder.{name}" for name in unneeded]) == []
    assert Path("out/dataset_info.json").exists()


@pytest.mark.slow
def test_a_conversion_on_this_machine_loads_no_client_of_a_store():
    code = f"from tfrecorder import parts; parts.stage({str(CSV)!r}, 'out'); "
    code += "parts.work('out'); parts.commit('out')"
    clients = (
        "google.cloud.storage",
        "google.auth",
        "google.api_core",
        "grpc",
        "obstore",
        "fsspec",
    )
    assert attempts_of(code, (*TENSORFLOW, *BEAM, *clients, "requests", "jinja2")) == []
    assert Path("out/dataset_info.json").exists()


@pytest.mark.slow
def test_reading_goes_through_without_beam(dataset):
    code = f"import tfrecorder; next(iter(tfrecorder.load({str(dataset)!r})['TRAIN']))"
    assert attempts_of(code, BEAM) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    ["tfrecorder.Records(out, 'TRAIN')[3]", "list(tfrecorder.batches(out, 'TEST', image_size=32))"],
)
def test_reading_by_number_takes_neither(dataset, code):
    whole = f"import tfrecorder; out = {str(dataset)!r}; {code}"
    assert attempts_of(whole, (*TENSORFLOW, *BEAM)) == []


@pytest.mark.slow
def test_numbers_for_a_loader_of_pytorch_take_nothing_heavy(dataset):
    code = f"import tfrecorder.torch as ours; out = {str(dataset)!r}; "
    code += "list(ours.BatchSampler(ours.Records(out, 'TRAIN')))"
    assert attempts_of(code, (*TENSORFLOW, *BEAM, "torch")) == []


@pytest.mark.slow
def test_the_status_of_a_conversion_takes_neither(dataset):
    code = f"import tfrecorder; tfrecorder.status({str(dataset)!r})"
    assert attempts_of(code, (*TENSORFLOW, *BEAM)) == []


@pytest.mark.slow
def test_work_without_beam_takes_neither():
    code = f"import tfrecorder; tfrecorder.parts.stage({str(CSV)!r}, 'out'); "
    code += "tfrecorder.parts.work('out'); tfrecorder.parts.commit('out')"
    assert attempts_of(code, (*TENSORFLOW, *BEAM)) == []
    assert Path("out/dataset_info.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("module", CONTRACT)
def test_the_contract_between_them_loads_neither(module):
    assert attempts_of(f"import tfrecorder.{module}", (*TENSORFLOW, *BEAM)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import tensorflow",
        "from tensorflow.io import gfile",
        "import importlib; importlib.import_module('tensorflow.io')",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import tensorflow",
        "import tfrecorder.loading.pipeline",
    ],
)
def test_the_proof_in_a_fresh_process_can_fail(code):
    assert attempts_of(code, TENSORFLOW)[0].startswith("tensorflow")


@pytest.mark.slow
def test_a_conversion_needs_beam_and_so_the_proof_can_fail():
    assert attempts_of(CONVERT, BEAM)[0] == "apache_beam"


# ---------------------------------------------------------------------------------------------
# In the text, by import-linter: the contracts stand in pyproject.toml, and `make lint` holds them.

LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A copy of the package with its contracts, to be broken."""
    house = tmp_path / "house"
    shutil.copytree(PACKAGE, house / "tfrecorder", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE.parent / "pyproject.toml", house)
    monkeypatch.chdir(house)
    monkeypatch.setenv("PYTHONPATH", str(house))
    return house


def broken_contracts():
    """The names of the contracts that the code in the current folder breaks."""
    finished = run("-c", LINT)
    assert "Contracts: " in finished.stdout, finished.stderr
    return re.findall(r"^(.*) BROKEN", finished.stdout, re.MULTILINE)


def test_the_house_stands(house):
    assert broken_contracts() == []


FLOORS = "Each floor imports from those below it, never from its own or from above"
CIRCLES = "No circle of files"
TENSORFLOW_WALL = "TensorFlow is imported in loading/ alone, Keras in keras.py alone"
BEAM_WALL = "Apache Beam is imported in runners/ and writing/pipeline.py alone"
WORKERS = "What a Dataflow worker runs never reaches TensorFlow"
READERS = "What reads never reaches Apache Beam"
ARRAYS = "What reads by number never reaches TensorFlow"
TORCH = "PyTorch is imported in torch.py alone"


@pytest.mark.parametrize(
    ("file", "crossing", "contracts"),
    [
        ("storage/retry.py", "from tfrecorder.format.plan import Plan", [FLOORS]),
        ("plan/make_plan.py", "from tfrecorder.plan import preflight", [CIRCLES]),
        ("conversion/convert.py", "def late():\n    import tensorflow as tf", [TENSORFLOW_WALL]),
        ("accessor.py", "from apache_beam import io", [BEAM_WALL]),
        ("writing/rows.py", "from tfrecorder.loading import decoding", [WORKERS]),
        ("reading/dataset_files.py", "import apache_beam", [BEAM_WALL, READERS]),
        ("reading/records.py", "def late():\n    import torch", [TORCH, ARRAYS]),
        *slow_cases(
            ("sources/source.py", "def late():\n    from tfrecorder.reading import open", [FLOORS]),
            ("newcomer.py", "", [FLOORS]),
            ("reading/order.py", "from tfrecorder.loading import order", [FLOORS]),
            ("reading/order.py", "def late():\n    import tensorflow", [TENSORFLOW_WALL, ARRAYS]),
            ("reading/order.py", "from tfrecorder import torch", [FLOORS]),
        ),
    ],
)
def test_a_floor_or_a_wall_that_is_broken_is_seen(house, file, crossing, contracts):
    with (house / "tfrecorder" / file).open("a") as text:
        text.write(f"\n{crossing}\n")
    assert set(contracts) <= set(broken_contracts())


def test_imports_for_type_checkers_do_not_count(house):
    lines = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tensorflow as tf\n"
    (house / "tfrecorder" / "plan" / "typed.py").write_text(lines)
    assert broken_contracts() == []


# ---------------------------------------------------------------------------------------------
# The tests themselves: they look at what a user sees.

TESTS = {path: path.read_text() for path in Path(__file__).parent.rglob("*.py")}


def test_few_files_of_tests_reach_into_the_package_and_each_says_why():
    inner = [path for path, code in TESTS.items() if inner_names(code)]
    of_tests = sorted(path.name for path in inner if path.name.startswith("test_"))
    assert len(of_tests) <= 25, of_tests
    assert len(inner) <= 33, sorted(path.name for path in inner)
    silent = [path.name for path in inner if "inner law" not in TESTS[path].split('"""')[1]]
    assert silent == []


def test_no_file_of_tests_knows_a_private_name():
    """Those that tests need, `support.py` knows for all."""
    known = {path.name: private_names(code) for path, code in TESTS.items()}
    assert [name for name, names in known.items() if names] == ["support.py"]


@pytest.mark.parametrize(
    "code",
    [
        "from tfrecorder.storage import retry",
        "def late():\n    from tfrecorder import storage",
        "import tfrecorder.images.jpeg as jpeg",
        "monkeypatch.setattr('tfrecorder.reading.order.BLOCK', 1)",
        "run('-c', 'from tfrecorder.schema import Image, splits')",
        "import tfrecorder\ntfrecorder.exports.card.Card",
    ],
)
def test_inner_names_are_found_wherever_they_stand(code):
    assert inner_names(code)
    assert not private_names(code)


@pytest.mark.parametrize(
    "code",
    [
        "from tfrecorder.images.jpeg import NAME",
        "from tfrecorder.images import jpeg\njpeg.NAME(b'')",
        "from tfrecorder.images import jpeg\nmonkeypatch.setattr(jpeg, 'NAME', None)",
        "monkeypatch.setattr('tfrecorder.images.jpeg.NAME', None)",
    ],
)
def test_private_names_are_found_wherever_they_stand(code):
    assert private_names(code.replace("NAME", "_decode"))


def test_what_users_import_is_not_inner():
    code = "from tfrecorder.schema import Image\nimport tfrecorder\ntfrecorder.parts.stage(CSV)"
    assert not inner_names(code)


def test_few_files_of_tests_lie_beside_the_folders():
    flat = sorted(path.name for path in Path(__file__).parent.glob("test_*.py"))
    assert len(flat) <= 12, flat
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert len(names) == len(set(names)), "pytest imports them by name"
