"""What completion, help and type checkers know of the calls that take options.

The inner law: what a signature shows at run time is what type checkers are told.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tfrecorder
from tfrecorder.options import keywords

#: Each call: how a script makes it, without the closing parenthesis; the types of its options.
CALLS: dict[str, tuple[Callable[..., Any], type, str]] = {
    "tfrecorder.convert('x.csv', 'out'": (
        tfrecorder.convert,
        keywords.ConvertKeywords,
        "check='full'",
    ),
    "tfrecorder.append('x.csv', 'out'": (
        tfrecorder.append,
        keywords.AppendKeywords,
        "new_classes='perhaps'",
    ),
    "tfrecorder.stream('in', 'out'": (
        tfrecorder.stream,
        keywords.StreamKeywords,
        "every_rows='all'",
    ),
    "tfrecorder.compact('out'": (tfrecorder.compact, keywords.CompactKeywords, "shuffle='exact'"),
    "tfrecorder.parts.stage('x.csv', 'out'": (
        tfrecorder.parts.stage,
        keywords.StageKeywords,
        "max_pixels='many'",
    ),
    "tfrecorder.load('out', 'TRAIN'": (
        tfrecorder.load,
        keywords.LoadKeywords,
        "resize='squash'",
    ),
    "tfrecorder.Records('out', 'TRAIN'": (
        tfrecorder.Records,
        keywords.ReadKeywords,
        "image_size='224'",
    ),
    "tfrecorder.batches('out', 'TRAIN'": (
        tfrecorder.batches,
        keywords.BatchKeywords,
        "layout='HWC'",
    ),
    "tfrecorder.torch.batches('out', 'TRAIN'": (
        tfrecorder.torch.batches,
        keywords.TensorKeywords,
        "num_workers='all'",
    ),
    "tfrecorder.validate('x.csv'": (
        tfrecorder.validate,
        keywords.ValidateKeywords,
        "stratify='label'",
    ),
    "tfrecorder.benchmark('out'": (
        tfrecorder.benchmark,
        keywords.BenchmarkKeywords,
        "step_ms='50'",
    ),
    "tfrecorder.preview('out'": (tfrecorder.preview, keywords.PreviewKeywords, "seconds='long'"),
}

by_call = pytest.mark.parametrize("call", CALLS)


#: Where checkers find the package: how an editable install leads to it, only Python itself knows.
ROOT = str(Path(tfrecorder.__file__).parent.parent)


def _mypy(script: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--show-absolute-path"]
    command += ["--follow-imports=silent", f"--cache-dir={script.parent}/cache", str(script)]
    environment = {**os.environ, "MYPYPATH": ROOT}
    return subprocess.run(command, capture_output=True, text=True, env=environment).stdout


def _pyright(script: Path) -> str:
    config = {"extraPaths": [ROOT], "include": [script.name]}
    (script.parent / "pyrightconfig.json").write_text(json.dumps(config))
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable]
    run = subprocess.run(command, capture_output=True, text=True, cwd=script.parent)
    found = json.loads(run.stdout)["generalDiagnostics"]
    lines = [f"{script}:{one['range']['start']['line'] + 1}: {one['severity']}" for one in found]
    return "\n".join(lines)


has_pyright = pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("check", [_mypy, pytest.param(_pyright, marks=has_pyright)])
def test_a_type_checker_reports_a_wrong_name_and_a_wrong_type(check, tmp_path) -> None:
    script = tmp_path / "script.py"
    lines = ["import tfrecorder"]
    wrong = []
    for call, (_, _, wrong_type) in CALLS.items():
        lines += [f"{call})", f"{call}, no_such_option=1)", f"{call}, {wrong_type})"]
        wrong += [len(lines) - 1, len(lines)]
    script.write_text("\n".join(lines))
    said = check(script)
    reported = {
        int(line.removeprefix(f"{script}:").split(":")[0])
        for line in said.splitlines()
        if line.startswith(f"{script}:") and "error" in line
    }
    assert reported == set(wrong), said


RIGHT = """
import pandas as pd
import tfrecorder
from tfrecorder.schema import Image, Label, Schema

schema = Schema(image=Image(), kind=Label())
print(tfrecorder.convert(pd.DataFrame(), "out", num_shards=8, schema=schema).records)
tfrecorder.convert("x.csv", "gs://b/o", runner="DataflowRunner", project="p", region="r").wait()
print(tfrecorder.append("x.csv", "out").records, tfrecorder.compact("out").records)
print(tfrecorder.append("x.csv", "out", stage_only=True).shards)
for images, labels in tfrecorder.load("out")["TRAIN"]:
    pass
for batch in tfrecorder.batches("out", "TRAIN", image_size=(2, 3), dtype=float, shard=(0, 1)):
    print(batch[0].shape)
print(tfrecorder.to_frame("out").label, len(tfrecorder.Records("out", "TRAIN", at=3)))
print(tfrecorder.info("out").records, tfrecorder.verify("out").ok)
"""


@pytest.mark.slow
@pytest.mark.parametrize("check", [_mypy, pytest.param(_pyright, marks=has_pyright)])
def test_a_type_checker_finds_nothing_wrong_in_a_right_script(check, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(RIGHT)
    assert "error" not in check(script)


@by_call
def test_the_signature_has_the_types_that_checkers_see(call) -> None:
    function, types, _ = CALLS[call]
    stated = typing.get_type_hints(types)
    shown = inspect.signature(function).parameters
    assert {name: shown[name].annotation for name in stated} == stated
    assert "options" not in shown


@by_call
def test_the_words_that_checkers_know_are_those_of_the_help(call) -> None:
    function, types, _ = CALLS[call]
    text = inspect.getdoc(function)
    for name, kind in typing.get_type_hints(types).items():
        paragraph = re.search(rf"^    {name}: (.*\n(?: {{8}}.*\n)*)", text + "\n", re.M)[1]
        words = [word for word in typing.get_args(kind) if isinstance(word, str)]
        assert all(word in paragraph for word in words), (name, paragraph)


@pytest.mark.slow
def test_editors_show_the_text_of_each_option() -> None:
    done = subprocess.run(
        [sys.executable, f"{ROOT}/scripts/option_texts.py", "--check"],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@by_call
def test_every_option_of_the_signature_is_taken_and_no_other(call) -> None:
    function, types, _ = CALLS[call]
    source = () if call.count("'") == 2 else ("out",)
    for name in typing.get_type_hints(types):
        with pytest.raises(tfrecorder.TfrecorderError) as raised:
            function("nowhere", *source, **{name: object()})
        assert f"no option {name!r}" not in str(raised.value)
    with pytest.raises(tfrecorder.errors.OptionError, match="no option 'of_nobody'"):
        function("nowhere", *source, of_nobody=1)


@by_call
def test_help_says_what_each_option_does(call) -> None:
    function, types, _ = CALLS[call]
    text = inspect.getdoc(function) or ""
    for name in typing.get_type_hints(types):
        paragraph = text.partition(f"\n    {name}: ")[2].partition("\n    ")[0]
        assert len(paragraph) > 10, name
    assert "**options" not in text
    assert all(len(line) <= 100 for line in text.splitlines())


@by_call
def test_help_says_the_range_of_a_number(call) -> None:
    function, types, _ = CALLS[call]
    for name, kind in typing.get_type_hints(types).items():
        if kind in (int, float, int | None, float | None):
            found = re.search(rf"^    {name}: (.*\n( {{8}}.*\n)*)", inspect.getdoc(function), re.M)
            words = " ".join(found[1].split())
            assert re.search(r"[Aa]t least [01]|\b[01] to |(from|above) 0|, 0 to 1", words), words


@by_call
def test_an_option_has_its_default_in_the_signature(call) -> None:
    function, types, _ = CALLS[call]
    for name in typing.get_type_hints(types):
        parameter = inspect.signature(function).parameters[name]
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default is not inspect.Parameter.empty


def test_the_methods_of_a_frame_show_the_options_of_the_functions() -> None:
    accessor = pd.DataFrame({"image_uri": ["a.jpg"]}).tensorflow
    for method, function in (("to_tfrecord", "convert"), ("validate", "validate")):
        of_frame = inspect.signature(getattr(accessor, method)).parameters
        there = inspect.signature(getattr(tfrecorder, function)).parameters
        assert {name: there[name] for name in there if name != "source"}.items() <= of_frame.items()
    assert "num_shards: " in inspect.getdoc(accessor.to_tfrecord)


@pytest.mark.slow
def test_a_notebook_completes_the_options() -> None:
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_cell("import tfrecorder, pandas as pd; df = pd.DataFrame({'image_uri': ['a.jpg']})")
    for typed in ("tfrecorder.convert('x', 'out', num_s", "df.tensorflow.to_tfrecord('o', num_s"):
        with provisionalcompleter():
            found = [one.text for one in shell.Completer.completions(typed, len(typed))]
        assert "num_shards=" in found
