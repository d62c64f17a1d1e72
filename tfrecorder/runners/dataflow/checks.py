"""Checks before a launch: report at once everything that would keep the job from running."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.display.tables import counted
from tfrecorder.errors import OptionError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.runners.dataflow.job import ENDPOINT
from tfrecorder.runners.dataflow.launcher import Settings, bucket_of, flags_of
from tfrecorder.storage import UnreadableError

#: Schemes of files that only this machine has.
_HERE = ("", "memory", "local")

#: Options of Beam that bring more packages to the workers.
_BRING_PACKAGES = (
    "requirements_file",
    "extra_package",
    "extra_packages",
    "setup_file",
    "sdk_container_image",
)


#: Options of Beam that name files, which it uploads.
_UPLOADED = ("requirements_file", "setup_file", "extra_package", "extra_packages")


def check_settings(output_dir: str, options: ConvertOptions) -> None:
    """Raise if what is given alone would keep Dataflow from starting; no store is asked.

    Raises:
        OptionError: as for `check`.
    """
    _refuse(*_setting_faults(Settings.of(output_dir, options), output_dir, options))


def _setting_faults(
    settings: Settings,
    output_dir: str,
    options: ConvertOptions,
) -> Iterator[Iterable[str | OptionError]]:
    """The faults that are found without asking a store, by their kinds."""
    yield _place_faults(settings)
    yield _output_faults(output_dir, options)
    yield _temporary_faults(settings, output_dir)
    yield _beam_faults(settings, output_dir, options)
    yield _package_faults(options)


def check(
    uris: Iterable[str],
    output_dir: str,
    options: ConvertOptions,
) -> None:
    """Raise unless Dataflow can start, and its workers can reach the images and the output.

    Nothing is written.  One request to each bucket, of the output and of the temporary files,
    checks that it exists.

    Args:
        uris: paths of the images, all or a sample, as `storage.resolve` gives them.
        output_dir: the dataset directory.
        options: of the conversion.

    Raises:
        OptionError: with all faults, each with its remedy.
    """
    settings = Settings.of(output_dir, options)
    _refuse(
        *_setting_faults(settings, output_dir, options),
        _image_faults(uris, options),
        _bucket_faults(settings, output_dir),
    )


def _refuse(*kinds: Iterable[str | OptionError]) -> None:
    faults = [*itertools.chain.from_iterable(kinds)]
    if faults:
        raise OptionError("the DataflowRunner cannot start:", *faults)


def _place_faults(settings: Settings) -> Iterator[OptionError]:
    examples = {"project": "my-project", "region": "us-central1"}
    for name, example in examples.items():
        if not getattr(settings, name):
            words = f"give the Google Cloud {name} of the job, such as {spelled(name, example)}."
            yield OptionError.of(name, ..., words)
    region = settings.region or ""
    if re.fullmatch(r".+\d-[a-z]", region):
        yield OptionError.of("region", region, f"it is a zone; give its region, {region[:-2]}.")


def _output_faults(output_dir: str, options: ConvertOptions) -> Iterator[OptionError]:
    kind = storage.scheme(output_dir)
    if kind in _HERE:
        yield OptionError.of(
            "output_dir",
            output_dir,
            "it is a path on this machine, which workers cannot reach: give a folder in a bucket, "
            "such as gs://my-bucket/photos.",
        )
    elif kind != "gs" and not _brings_packages(options):
        yield OptionError.of("output_dir", output_dir, _needs_packages(kind))


def _image_faults(uris: Iterable[str], options: ConvertOptions) -> Iterator[str]:
    of_kind: dict[str, list[str]] = {}
    for uri in uris:
        of_kind.setdefault(storage.scheme(uri), []).append(uri)
    images = counted(sum(map(len, of_kind.values())), "image")
    for kind, [example, *others] in of_kind.items():
        if kind in _HERE:
            yield (
                f"{len(others) + 1:,} of {images} looked at are on this machine, such as "
                f"{example!r}, where workers cannot reach them: copy them to a bucket, with "
                "`gcloud storage cp --recursive FOLDER gs://my-bucket/`, and give their paths "
                "there."
            )
        elif kind not in ("gs", *storage.WEB) and not _brings_packages(options):
            yield f"image {example!r}: {_needs_packages(kind)}"


def _brings_packages(options: ConvertOptions) -> bool:
    return any((options.runner_options or {}).get(name) for name in _BRING_PACKAGES)


def _needs_packages(kind: str) -> str:
    requirements = spelled("runner_options", {"requirements_file": "FILE"})
    image = spelled("runner_options", {"sdk_container_image": "IMAGE"})
    return (
        f"Beam's worker image has no package that reads {kind}://: list the packages for it in a "
        f"file, and give that file as {requirements}; or give your own image as {image}."
    )


def _temporary_faults(settings: Settings, output_dir: str) -> Iterator[str | OptionError]:
    if settings.temp_location is None:
        example = spelled("runner_options", {"temp_location": "gs://my-bucket/tmp"})
        where = f"give a folder in a bucket, as {example}"
        yield f"the place for the job's own files is missing: {where}."
    for name in ("temp_location", "staging_location"):
        place = getattr(settings, name)
        if place is None:
            continue
        words = ""
        if storage.scheme(place) != "gs" or not place.removeprefix("gs://").partition("/")[2]:
            words = "give a folder in a bucket, such as gs://my-bucket/tmp."
        elif f"{place}/".startswith(f"{output_dir.rstrip('/')}/"):
            words = (
                f"it is inside {output_dir!r}, which holds the dataset and nothing else: give "
                "another folder in a bucket."
            )
        if words:
            yield OptionError.of("runner_options", {name: place}, words)


def _beam_faults(
    settings: Settings,
    output_dir: str,
    options: ConvertOptions,
) -> list[str]:
    """What Beam itself has against the other options, found without asking any service."""
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

    complete = dataclasses.replace(  # with stand-ins for those that are checked above
        settings,
        project=settings.project or "my-project",
        region=settings.region or "us-central1",
        temp_location="gs://my-bucket/tmp",
        staging_location="gs://my-bucket/tmp",
    )
    # A dry run asks no bucket.  Beam checks little if the service is on this machine.
    flags = [*flags_of(output_dir, options, complete), "--dry_run=True"]
    if urlsplit(settings.endpoint).hostname == "localhost":
        flags.append(f"--dataflow_endpoint={ENDPOINT}")
    return list(PipelineOptionsValidator(PipelineOptions(flags), DataflowRunner()).validate())


def _package_faults(options: ConvertOptions) -> Iterator[OptionError]:
    """Files that Beam would miss only once the plan is staged."""
    for name in _UPLOADED:
        given = (options.runner_options or {}).get(name) or ()
        for path in [given] if isinstance(given, str) else given:
            if storage.is_local(path) and not os.path.isfile(path):
                yield OptionError.of("runner_options", {name: path}, "there is no such file.")


def _bucket_faults(settings: Settings, output_dir: str) -> Iterator[str]:
    places = (output_dir, settings.temp_location, settings.staging_location)
    buckets = [bucket_of(place) for place in places if place and storage.scheme(place) == "gs"]
    for bucket in dict.fromkeys(filter(None, buckets)):
        try:
            if storage.is_unsigned(f"gs://{bucket}"):  # a public bucket would still let us look
                raise UnreadableError("no_credentials", storage.NO_CREDENTIALS)
            storage.is_folder(f"gs://{bucket}")
        except UnreadableError as error:
            if error.code == "no_credentials":
                yield f"{error.detail}."
                return
            yield _bucket_fault(bucket, error, settings.region)


def _bucket_fault(
    bucket: str,
    error: UnreadableError,
    region: str | None,
) -> str:
    if error.code == "not_found":
        return (
            f"the bucket gs://{bucket} does not exist: create it, with `gcloud storage buckets "
            f"create gs://{bucket} --location={region or 'us-central1'}`, or name another."
        )
    return f"the bucket gs://{bucket} cannot be accessed: {error.detail}."
