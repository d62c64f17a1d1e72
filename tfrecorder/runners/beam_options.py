"""Beam's runners: their classes, and their options, checked by Beam's own parser.

All of this happens before anything is written, so a misspelt option costs seconds, not a job.
"""

from __future__ import annotations

import difflib
import importlib
import json
import re
import socket
from collections.abc import Mapping
from typing import Any

from tfrecorder.core.option import spelled
from tfrecorder.errors import OptionError, install, refuse_missing
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.runner import DIRECT, OWN, RUNNERS, plain_name, refusal
from tfrecorder.runners.beam_patches import quiet_beam

#: Options that name a server which must already be running.
_ENDPOINTS = ("dask_client_address", "job_endpoint")
_CONNECT_SECONDS = 10

#: What to do for the packages of a runner.
_PACKAGES = {
    "DaskRunner": f"run `{install('dask')}` (on the workers too).",
    "DataflowRunner": f"run `{install('beam')}`.",
}


def load_runner(name: str) -> type:
    """The class of a runner, from one of the names in `RUNNERS` or its dotted path.

    Raises:
        OptionError: there is no such runner, or a package that it needs is missing.
    """
    path = RUNNERS.get(name, name)
    module, _, attribute = path.rpartition(".")
    if not module:
        near = difflib.get_close_matches(name, RUNNERS, n=1, cutoff=0.5)
        names = f"there are {', '.join(RUNNERS)}, or give the dotted path of a runner's class."
        remedy = f"did you mean {near[0]}?" if near else names
        raise OptionError.of("runner", name, f"there is no such runner; {remedy}")
    try:
        runner = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        remedy = _PACKAGES.get(name, "give the dotted path of a runner's class.")
        raise OptionError.of("runner", name, f"it cannot be loaded ({error}); {remedy}") from error
    from apache_beam.runners.runner import PipelineRunner

    if not (isinstance(runner, type) and issubclass(runner, PipelineRunner)):
        raise OptionError.of(
            "runner",
            name,
            "it is not a runner of Beam; name a subclass of its class.",
        )
    return runner


@quiet_beam()
def check_runner(options: ConvertOptions) -> None:
    """Check the runner and its options, before anything is written.

    Raises:
        OptionError: says everything that is wrong with them.
        PackageError: they need Beam, which is not installed.
    """
    if options.runner is not None or options.runner_options:
        refuse_missing("apache_beam")
    name = options.runner or DIRECT
    if name == DIRECT and options.runner_options and (options.num_workers or 1) > 1:
        raise OptionError.of(
            "num_workers",
            options.num_workers,
            "these processes run without Beam, and so without its options; give one.",
        )
    if name == DIRECT and not options.runner_options:
        return  # no need to ask Beam, whose import takes a second
    runner = load_runner(name)
    flags = beam_flags(options)
    if name not in (DIRECT, "DataflowRunner") and options.num_workers is not None:
        raise OptionError.of(
            "num_workers",
            options.num_workers,
            f"it has no effect with the {name}, because the cluster decides how many "
            "workers there are; leave it out.",
        )
    if name == "DataflowRunner":
        return  # its launcher completes the options before Beam checks them
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

    faults = []
    faults += PipelineOptionsValidator(PipelineOptions(flags), runner()).validate()
    given = options.runner_options or {}
    if name == "PortableRunner" and "job_endpoint" not in given:
        faults.append(
            "the address of the job service is missing: give it, such as "
            f"{spelled('runner_options', {'job_endpoint': 'localhost:8099'})}."
        )
    servers = [_unreachable(name, given[name]) for name in _ENDPOINTS if name in given]
    faults += filter(None, servers)
    if faults:
        raise OptionError(f"the {name} cannot start:", *faults)


def beam_flags(options: ConvertOptions) -> list[str]:
    """`runner_options` as arguments for Beam's `PipelineOptions`.

    Raises:
        OptionError: Beam has no such option, its value has the wrong type, or a conversion does not
            work with it; one error names them all.
    """
    if not options.runner_options:
        return []
    from apache_beam.options.pipeline_options import PipelineOptions

    parsers: list[Any] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    parsers[0].error = _raise_fault
    parser = parsers[0]
    runner = options.runner or DIRECT
    flags = []
    faults = []
    # Which option gives each value of Beam's, under any of its names.
    own = {name: getattr(options, name) for name in OWN}
    given = {name: spelled(name, value) for name, value in own.items() if value is not None}
    for name, value in options.runner_options.items():
        written = _written(parser, name, value)
        reason = refusal(name, value, runner)
        first = given.setdefault(_one_value_of(parser, name), name)
        if first != name:
            reason = reason or f"{first} says it too; give one of them."
        try:
            if name == "help" or parser.parse_known_args(written)[1]:
                known = re.findall(r"--([\w-]+)", parser.format_help())
                near = difflib.get_close_matches(name, map(plain_name, known), n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                reason = f"neither Beam nor the {runner} has such an option{hint}"
        except ValueError as fault:
            reason = reason or str(fault)
        if reason:
            faults.append(OptionError.of("runner_options", {name: value}, reason))
        flags += written
    if faults[1:]:
        raise OptionError(f"{spelled('runner_options')} cannot be used:", *faults)
    if faults:
        raise faults[0]
    try:
        parser.parse_args(flags)  # options that exclude each other
    except ValueError as fault:
        raise OptionError.of("runner_options", ..., str(fault)) from fault
    return flags


def _one_value_of(parser: Any, name: str) -> str:
    """What Beam calls the value of an option, under any of its names; the name, if it is a list.

    argparse tells it by a private name alone (seen in Python 3.10 to 3.14); without that, no two
    names are one.
    """
    action: Any = getattr(parser, "_option_string_actions", {}).get(f"--{name}")
    return str(action.dest) if type(action).__name__.startswith("_Store") else name


def _raise_fault(message: str) -> None:
    raise ValueError(message.partition(": ")[2] or message)


def _written(
    parser: Any,
    name: str,
    value: Any,
) -> list[str]:
    """The arguments for one option; on a command line True and False are texts."""
    match {"true": True, "false": False}.get(str(value).lower(), value):
        case None:
            return []
        case True:
            return [f"--{name}"]
        case False:  # its opposite, if it has one
            opposite = f"--no_{name}"
            return [] if parser.parse_known_args([opposite])[1] else [opposite]
        case list() | tuple():
            return [f"--{name}={item}" for item in value]
        case Mapping():
            return [f"--{name}={json.dumps(value)}"]
    return [f"--{name}={value}"]


def _unreachable(name: str, address: Any) -> OptionError | None:
    """The fault of a server that does not answer; None if it does, or if it has no port."""
    host, _, port = str(address).rpartition("://")[2].rpartition(":")
    if not port.isdecimal():
        return None  # "embed", or another protocol
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        return OptionError.of(
            "runner_options",
            {name: address},
            f"nothing answers there ({reason}); is the server running?",
        )
    return None
