"""A gateway and an executor as real processes with an application of three variants, so that there is accuracy to give
up under pressure; and a second application with nothing but the least accurate one, to measure capacity with."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.protocol import frames
from workers.protocol.specs import ApplicationSpec, DevicePlan, Plan, ProfilePoint, Resident, Route, VariantSpec

from .alone import Alone
from .load import requests, v2_grpc_request, v2_request
from .models import Model, convolutions, perceptron
from .recording.process import Load
from .stack import DEVICE, KEY, MAX_BATCH, Stack

SLO_S = 0.2
#: accuracy in percent by variant, least accurate first
VARIANTS = {"fast": 76.0, "medium": 84.0, "slow": 90.0}
#: what a kind's variants are made of: a CNN gains next to nothing from batches here, an MLP much
KINDS = {"cnn": (convolutions, (1.0, 1.6, 2.5)), "mlp": (perceptron, (32, 56, 96))}
#: the application that is pressed, and the one that has the least accurate variant alone
PRESSED, FASTEST = "pressed", "fastest"


@dataclass(frozen=True)
class Known:
    """A variant: its model, its accuracy in percent, and its profile (median seconds by batch size)."""

    name: str
    model: Model
    accuracy: float
    profile: Mapping[int, float]


def make(folder: Path, kind: str, profile_s: float) -> list[Known]:
    """The variants of one of :data:`KINDS`, profiled in this process for so many seconds a batch size."""
    core = min(os.sched_getaffinity(0))
    build, sizes = KINDS[kind]
    made = []
    for (name, accuracy), size in zip(VARIANTS.items(), sizes, strict=True):
        model = build(folder, name, size, SLO_S)
        made.append(Known(name, model, accuracy, Alone(model, core).profile(profile_s)))
    return made


class VariantStack(Stack):
    """Both applications on one executor of one core, behind one gateway; a context manager. The plan stays as it is,
    since no control plane runs."""

    def __init__(self, folder: Path, variants: Sequence[Known]):
        super().__init__(folder, [], {})
        self.variants = list(variants)
        signature, endpoint = variants[0].model.signature, self._info.endpoint
        self._applications = tuple(ApplicationSpec(name, SLO_S, signature) for name in (PRESSED, FASTEST))
        of = [*((PRESSED, one) for one in variants), (FASTEST, variants[0])]
        residents = tuple(_resident(id, name, one, variants[-1]) for id, (name, one) in enumerate(of, 1))
        device = DevicePlan(DEVICE, endpoint, residents)
        self._plan = Plan(1, (device,), tuple(Route(name, DEVICE, 1.0) for name in (PRESSED, FASTEST)))
        files = {one.variant.digest: str(known.model.path) for one, (_, known) in zip(residents, of, strict=True)}
        self._apply = frames.Apply(1, device, self._applications, files)

    def load(self, application: str, file: Path, grpc: bool = False, **given) -> Load:
        """A load for one of the applications; ``given``: the rest of the :class:`Load`."""
        sent, answers = [], {}
        for known in self.variants:
            # The same inputs for each variant; the answers are its own.
            sent, answers[known.name] = requests(
                known.model, v2_grpc_request(application) if grpc else v2_request(application, KEY)
            )
        # What runs on the executor's core is the model and nothing of the load.
        cores = sorted(os.sched_getaffinity(0) - {self.core}) or [self.core]
        return Load(
            port=self.grpc_port if grpc else self.http_port,
            requests=sent,
            answers=answers,
            file=str(file),
            grpc_key=KEY if grpc else "",
            cores=cores,
            **given,
        )


def _resident(id: int, application: str, known: Known, best: Known) -> Resident:
    data = known.model.path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    accuracy = 100 * known.accuracy / best.accuracy
    spec = VariantSpec(id, known.name, application, digest, len(data), known.accuracy, accuracy)
    points = tuple(ProfilePoint(batch, s, s, s, 20) for batch, s in sorted(known.profile.items()))
    return Resident(spec, MAX_BATCH, 100.0, 0.25, points)
