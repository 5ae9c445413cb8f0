"""The demo's manifest: ``models/manifest.json`` and its files, read and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "models"


@dataclass(frozen=True)
class DemoVariant:
    """A trained variant with its measured accuracy.

    Attributes:
        accuracy: percent of the validation set, as onnxruntime measured it when the file was written.
        wrong: the rows of that set that were classified wrongly.
    """

    name: str
    path: Path
    accuracy: float
    wrong: tuple[int, ...] = ()


@dataclass(frozen=True)
class DemoApplication:
    """An application with its variants.

    Attributes:
        signature: as the REST API takes it.
        variants: cheapest first.
    """

    name: str
    description: str
    slo_ms: float
    signature: dict
    validation_set: Path
    metric: str
    variants: tuple[DemoVariant, ...]

    def samples(self) -> dict[str, np.ndarray]:
        """Real held-out rows to send as queries: each input's array, rows first."""
        with np.load(self.validation_set) as arrays:
            return {spec["name"]: np.ascontiguousarray(arrays[spec["name"]]) for spec in self.signature["inputs"]}

    def labels(self) -> np.ndarray:
        with np.load(self.validation_set) as arrays:
            return arrays["labels"]


def applications(folder: Path = FOLDER) -> tuple[DemoApplication, ...]:
    """In the manifest's order. Raises FileNotFoundError."""
    found = []
    for entry in json.loads((folder / "manifest.json").read_text())["applications"]:
        variants = tuple(
            DemoVariant(v["name"], folder / v["file"], v["accuracy"], tuple(v["wrong"])) for v in entry["variants"]
        )
        validation_set = folder / entry["validation_set"]
        for path in (validation_set, *(variant.path for variant in variants)):
            if not path.is_file():
                raise FileNotFoundError(f"{folder / 'manifest.json'} names {path}, which does not exist")
        found.append(
            DemoApplication(
                name=entry["name"],
                description=entry["description"],
                slo_ms=entry["slo_ms"],
                signature=entry["signature"],
                validation_set=validation_set,
                metric=entry["metric"],
                variants=variants,
            )
        )
    return tuple(found)
