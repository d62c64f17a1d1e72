"""Beam's runners: their classes, and their options, checked by Beam's own parser.

All of this happens before anything is written, so a misspelt option costs seconds, not a job.
"""

from __future__ import annotations

import difflib
import importlib
import json
import socket
from collections.abc import Mapping
from typing import Any

from tfrecorder.errors import OptionError, refuse_missing
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.runner import RUNNERS, plain_name, refusal
from tfrecorder.runners.beam_patches import options_parser

#: Options that name a server which must already be running.
_ENDPOINTS = ("dask_client_address", "job_endpoint")
_CONNECT_SECONDS = 10

_PACKAGES = {
    "DaskRunner": 'pip install "dask[distributed]" (on the workers too)',
    "DataflowRunner": 'pip install "apache-beam[gcp]"',
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
        known = f"did you mean {near[0]}?" if near else f"there are {', '.join(RUNNERS)}"
        more = "" if near else ", or give the dotted path of a runner's class."
        raise OptionError(f"runner={name!r}: there is no such runner; {known}{more}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        remedy = _PACKAGES.get(name)
        advice = f"run {remedy}." if remedy else "give the dotted path of a runner's class."
        raise OptionError(f"runner={name!r} cannot be loaded ({error}); {advice}") from error
    from apache_beam.runners.runner import PipelineRunner

    if not (isinstance(found, type) and issubclass(found, PipelineRunner)):
        raise OptionError(f"runner={name!r} is not a runner of Beam; name a subclass of its class.")
    return found


def check_runner(options: ConvertOptions) -> None:
    """Raise an OptionError with everything that is wrong with the runner and its options."""
    if options.runner == "DirectRunner" and not options.runner_options:
        return  # no need to ask Beam, whose import takes a second
    refuse_missing("apache_beam")
    runner = load_runner(options.runner)
    flags = beam_flags(options)
    if options.runner not in ("DirectRunner", "DataflowRunner") and options.num_workers is not None:
        raise OptionError(
            f"num_workers={options.num_workers}: it has no effect with the {options.runner}, "
            "because the cluster decides how many workers there are; leave it out."
        )
    if options.runner == "DataflowRunner":
        return  # its launcher completes the options before Beam checks them
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

    faults = PipelineOptionsValidator(PipelineOptions(flags), runner()).validate()
    given = options.runner_options
    if options.runner == "PortableRunner" and "job_endpoint" not in given:
        faults.append(
            "job_endpoint is missing: give the job service's address, such as localhost:8099."
        )
    words = [_unreachable(name, given[name]) for name in _ENDPOINTS if name in given]
    faults += filter(None, words)
    if faults:
        raise OptionError("runner_options: " + "\n".join(faults))


def beam_flags(options: ConvertOptions) -> list[str]:
    """`runner_options` as arguments for Beam's `PipelineOptions`.

    Raises:
        OptionError: Beam has no such option, its value has the wrong type, or a conversion does not
            work with it; one error names them all.
    """
    parser = options_parser()
    if parser is None:
        return _unchecked_flags(options.runner_options)
    parser.error = _raise_fault
    flags: list[str] = []
    faults: list[str] = []
    for name, value in options.runner_options.items():
        try:
            flags += _parsed(parser, name, value, options.runner)
        except _FaultError as fault:
            faults.append(str(fault))
    if not faults:
        try:
            parser.parse_args(flags)  # options that exclude each other
        except _FaultError as fault:
            faults.append(f"runner_options: {fault}")
    if faults:
        raise OptionError("\n".join(faults))
    return flags


class _FaultError(Exception):
    """What the parser says about an argument."""


def _raise_fault(message: str) -> None:
    raise _FaultError(message.partition(": ")[2] or message)


def _unchecked_flags(options: Mapping[str, Any]) -> list[str]:
    """Options as they are, for Beam to check."""
    flags: list[str] = []
    for name, value in options.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        flags += [f"--{name}" if one is True else f"--{name}={_text(one)}" for one in values]
    return flags


def _parsed(parser: Any, name: str, value: Any, runner: str) -> list[str]:
    """The arguments for one option, once Beam's parser has accepted them."""
    known = {
        plain_name(flag): (flag, action)
        for action in parser._actions
        if action.dest != "help"
        for flag in reversed(action.option_strings)
    }
    shown = f"runner_options[{name!r}]={value!r}"
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise _FaultError(f"{shown}: neither Beam nor the {runner} has such an option{hint}")
    if words := refusal(name, value, runner):
        raise _FaultError(f"{shown}: {words}")
    flag, action = known[name]
    try:
        flags = _written(flag, action, value, parser)
        parser.parse_args(flags)
    except (_FaultError, ValueError) as fault:
        raise _FaultError(f"{shown}: {fault}") from fault
    return flags


def _written(flag: str, action: Any, value: Any, parser: Any) -> list[str]:
    if value is None:
        return []
    if action.nargs == 0:
        return _switch(flag, action, value, parser)
    if isinstance(value, (list, tuple)):
        if type(action).__name__ == "_StoreAction" and len(value) > 1:
            raise _FaultError("it takes one value")
        return [f"{flag}={_text(one)}" for one in value]
    if isinstance(value, bool):
        raise _FaultError("it takes a value, not True or False")
    return [f"{flag}={_text(value)}"]


def _switch(flag: str, action: Any, value: Any, parser: Any) -> list[str]:
    """A flag without a value: the flag for True; for False its opposite, if it has one."""
    on = {"true": True, "false": False}.get(str(value).lower())
    if on is None:
        raise _FaultError("it takes True or False")
    if on:
        return [flag]
    opposites = [
        other.option_strings[0]
        for other in parser._actions
        if other.dest == action.dest and other.nargs == 0 and other.const is not action.const
    ]
    return opposites[:1]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, Mapping) else str(value)


def _unreachable(name: str, address: Any) -> str | None:
    """Words for a server that does not answer; None if it does, or if it has no port."""
    host, _, port = str(address).rpartition("://")[2].rpartition(":")
    if not port.isdecimal():
        return None  # "embed", or another protocol
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        words = getattr(error, "strerror", None) or error
        return f"nothing answers at {name}={address!r} ({words}); is the server running?"
    return None
