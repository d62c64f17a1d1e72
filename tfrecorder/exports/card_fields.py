"""`card.yaml`: what only people know of a dataset, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfrecorder import storage
from tfrecorder.core.checks import text
from tfrecorder.core.option import option
from tfrecorder.errors import OptionError
from tfrecorder.format import layout
from tfrecorder.options.option import Options, refuse_unknown

#: The responsible-AI fields of Croissant RAI 1.0, and what NeurIPS asks for besides.
RAI = (
    "annotationsPerItem",
    "annotatorDemographics",
    "dataAnnotationAnalysis",
    "dataAnnotationPlatform",
    "dataAnnotationProtocol",
    "dataBiases",
    "dataCollection",
    "dataCollectionMissingData",
    "dataCollectionRawData",
    "dataCollectionTimeframe",
    "dataCollectionType",
    "dataImputationProtocol",
    "dataLimitations",
    "dataSocialImpact",
    "dataManipulationProtocol",
    "dataPreprocessingProtocol",
    "dataReleaseMaintenancePlan",
    "dataUseCases",
    "hasSyntheticData",
    "machineAnnotationTools",
    "personalSensitiveInformation",
)


def _by_name(value: Any) -> str | None:
    return None if isinstance(value, Mapping) else "give names with values, one a line."


@dataclass(frozen=True, kw_only=True)
class CardFields(Options):
    """What `card.yaml` may state; `croissant` is any further properties of `croissant.json`.

    Raises:
        OptionError: a value has the wrong type.
    """

    name: str | None = option(None, text)
    description: str | None = option(None, text)
    license: str | None = option(None, text)
    citation: str | None = option(None, text)
    homepage: str | None = option(None, text)
    rai: Mapping[str, Any] | None = option(None, _by_name)
    croissant: Mapping[str, Any] | None = option(None, _by_name)

    @property
    def for_tfds(self) -> dict[str, Any]:
        """Those that `dataset_info.json` has a field for, as it has them."""
        made = {
            "description": self.description,
            "citation": self.citation,
            "location": self.homepage and {"urls": [self.homepage]},
            "redistributionInfo": self.license and {"license": self.license},
        }
        return {name: value for name, value in made.items() if value}

    @property
    def for_croissant(self) -> dict[str, Any]:
        """Those that Croissant has a property for, as it has them."""
        made = {"license": self.license, "citeAs": self.citation, "url": self.homepage}
        made |= {f"rai:{name}": said for name, said in (self.rai or {}).items()}
        return {name: v for name, v in made.items() if v is not None} | dict(self.croissant or {})


def read_card_fields(directory: str) -> CardFields:
    """What the `card.yaml` of a dataset states; nothing if there is none.

    Raises:
        OptionError: it is not such a file; the message names the field and the remedy.
    """
    import yaml

    path = os.path.join(directory, layout.CARD_YAML)
    try:
        values = yaml.safe_load(storage.read_bytes(path)) or {}
        if fault := _by_name(values):
            raise OptionError(fault)
        fields = CardFields.of(values)
        refuse_unknown(fields.rai or {}, RAI)
        return fields
    except storage.UnreadableError as error:
        if error.code == "not_found":
            return CardFields()
        raise OptionError(f"{path} cannot be read: {error}.") from error
    except (OptionError, yaml.YAMLError) as error:
        raise OptionError(f"{path}: {' '.join(str(error).split())}") from error
