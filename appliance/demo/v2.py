"""Queries of V2 as tritonclient sends them, and how their answers are read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import InferInput, InferResult

from .manifest import DemoApplication


@dataclass(frozen=True)
class InferenceAnswer:
    """The answer to one query.

    Attributes:
        label: the class with the highest score.
        variant: the one that answered.
        accuracy: its accuracy, percent.
    """

    label: int
    variant: str
    accuracy: float


def queries(application: DemoApplication) -> list[InferInput]:
    """One query of one row for each held-out sample."""
    spec = application.signature["inputs"][0]
    inputs = []
    for row in np.asarray(application.samples()[spec["name"]], np.float32):
        tensor = InferInput(spec["name"], [1, *row.shape], spec["datatype"])
        tensor.set_data_from_numpy(row[np.newaxis])
        inputs.append(tensor)
    return inputs


def answer(result: InferResult) -> InferenceAnswer:
    """Read a result.

    Raises:
        ValueError: it has not one output of finite scores.
    """
    response = result.get_response()
    if len(response.outputs) != 1:
        raise ValueError(f"outputs: must be one, not {len(response.outputs)}")
    scores = result.as_numpy(response.outputs[0].name)
    if scores is None or scores.size == 0 or not np.isfinite(scores).all():
        raise ValueError("scores: must be finite numbers")
    parameters = response.parameters
    return InferenceAnswer(
        int(scores.argmax()), parameters["variant"].string_param, parameters["accuracy"].double_param
    )
