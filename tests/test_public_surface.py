"""The public surface is one list, and every name on it is there, documented and picklable."""

import inspect
import pickle
import pydoc
import re
import types

import pandas as pd
import pytest
from helpers.wall_cases import BEAM, TENSORFLOW, attempts_of
from support import run

import tfrecorder
from tfrecorder import errors

ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, Exception)
]

#: They need no example: what is caught, and what a comparison takes.
OBVIOUS = ("TfrecorderError", "ValidationError", "__version__")


def test_the_list_is_short_and_sorted():
    assert tfrecorder.__all__ == sorted(set(tfrecorder.__all__))
    assert len(tfrecorder.__all__) <= 38


@pytest.mark.parametrize("name", tfrecorder.__all__)
def test_every_public_name_is_there(name):
    assert getattr(tfrecorder, name) is not None


@pytest.mark.slow
def test_what_a_fresh_import_shows_is_the_list():
    code = "import tfrecorder; print(*dir(tfrecorder))"
    assert run("-c", code).stdout.split() == tfrecorder.__all__


@pytest.mark.slow
def test_nothing_is_public_beside_the_list():
    code = """
import types, tfrecorder
names = [n for n, v in vars(tfrecorder).items() if not isinstance(v, types.ModuleType)]
print(*[n for n in names if not n.startswith("_")])
"""
    beside = set(run("-c", code).stdout.split()) - set(tfrecorder.__all__)
    assert beside == {"annotations", "import_module", "Any", "TYPE_CHECKING"}


def test_a_star_import_brings_the_list():
    scope = {}
    exec("from tfrecorder import *", scope)
    assert scope.keys() - {"__builtins__"} == set(tfrecorder.__all__)


STAR = "from tfrecorder import *; "
FRAMEWORKS = (*TENSORFLOW, *BEAM, "torch", "click")


@pytest.mark.slow
def test_a_star_import_loads_no_framework_and_hides_none():
    assert (
        attempts_of(STAR + "assert 'torch' not in vars() and 'keras' not in vars()", FRAMEWORKS)
        == []
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use", "package"),
    [("load('out')", "tensorflow"), ("benchmark('out')", "tensorflow"), ("import click", "click")],
)
def test_the_proof_for_a_star_import_can_fail(use, package):
    assert attempts_of(STAR + use, FRAMEWORKS) == [package]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["schema.Image", "parts.stage", "errors.OptionError", "streaming.Unusable", "torch.batches"],
)
def test_a_module_is_there_without_its_own_import(name):
    assert run("-c", f"import tfrecorder; print(tfrecorder.{name})").stdout


@pytest.mark.slow
def test_the_module_of_keras_is_there_without_its_own_import():
    code = "import tfrecorder; print(tfrecorder.keras.TrainingPosition.__module__)"
    assert run("-c", code).stdout == "tfrecorder.keras\n"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'tfrecorder' has no attribute 'converted'"):
        tfrecorder.converted  # noqa: B018


@pytest.mark.parametrize("name", [name for name in tfrecorder.__all__ if name != "__version__"])
def test_every_public_name_is_documented(name):
    value = getattr(tfrecorder, name)
    text = inspect.getdoc(value)
    assert text
    if inspect.isclass(value):
        public = {k: v for k, v in vars(value).items() if k[0] != "_" and inspect.isfunction(v)}
        assert all(inspect.getdoc(method) for method in public.values())
    if name not in OBVIOUS and not isinstance(value, types.ModuleType):
        assert ">>> " in text


def test_help_begins_as_the_readme_and_names_everything():
    text = tfrecorder.__doc__
    assert text.startswith("A pandas frame of images in, a training-ready TFRecord dataset out")
    assert re.search(r"df\.tensorflow\.to_tfrecord\(.*\n.*tfrecorder\.load\(", text)
    lines = re.findall(r"^    (\w+) +\S", text, re.MULTILINE)
    assert sorted(lines) == sorted({*tfrecorder.__all__, "keras", "torch"} - {*OBVIOUS})


@pytest.mark.parametrize(
    ("module", "names"),
    [("schema", "Boxes Image Label Mask Schema Split Text"), ("parts", "commit stage work")],
)
def test_help_of_a_module_explains_what_it_holds(module, names):
    text = pydoc.plain(pydoc.render_doc(getattr(tfrecorder, module)))
    for name in names.split():
        assert re.search(rf"^    (class )?{name}\(", text, re.MULTILINE), name


@pytest.mark.parametrize("verb", ["preview", "validate", "to_tfrecord"])
def test_a_frame_has_the_verbs(verb):
    assert inspect.getdoc(getattr(pd.DataFrame().tensorflow, verb))


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_is_caught_as_one(error):
    assert issubclass(error, tfrecorder.TfrecorderError)


@pytest.mark.parametrize("name", ["OptionError", "SourceError", "ValidationError"])
def test_errors_about_what_was_given_are_value_errors(name):
    assert issubclass(getattr(errors, name), ValueError)


@pytest.mark.parametrize("error", ERRORS)
def test_errors_cross_processes_with_their_words(error):
    report = _more(error)
    one = error("what, where, remedy", *report)
    other = pickle.loads(pickle.dumps(one))
    assert type(other) is error
    assert str(other) == str(one) == "\n".join(["what, where, remedy", *map(str, report)])


def _more(error):
    return [pd.DataFrame({"code": ["null_uri"]})] if error is errors.ValidationError else []


def test_a_validation_error_keeps_its_report():
    one = tfrecorder.ValidationError("faults", pd.DataFrame({"code": ["null_uri"]}))
    other = pickle.loads(pickle.dumps(one))
    assert other.report.equals(one.report)
