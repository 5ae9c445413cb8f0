"""Constraints of queries, and the errors where no warm variant meets them."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from workers.gateway import constraints
from workers.gateway.catalog import Catalog
from workers.gateway.constraints import CapableVariant, Constraints
from workers.gateway.in_flight import InFlightQuery
from workers.protocol.frames import RequestShape, TensorHeader, WarmVariant
from workers.v2.query import Terms, V2Query

from .conftest import KEY, application, config, plan, wait_for

X = [[1.0, 2.0, 3.0, 4.0]]
KEYED = {"authorization": f"Bearer {KEY}"}
SMALL = CapableVariant("d0", 1, "small", 80.0, 0.005)
BIG = CapableVariant("d1", 2, "big", 95.0, 0.040)
UNKNOWN = CapableVariant("d2", 3, "new", 99.0, None)
SLOW, SLOWEST = CapableVariant("d0", 1, "small", 80.0, 1.2345), CapableVariant("d1", 2, "big", 95.0, 2.0)


@pytest.mark.parametrize(
    ("able", "min_accuracy", "latency_s", "says"),
    [
        ([SMALL, BIG], None, None, None),
        ([SMALL, BIG], 90.0, None, None),
        ([SMALL, BIG], None, 0.010, None),
        ([SMALL, BIG], 95.0, 0.040, None),
        # One of unknown latency is tried.
        ([SMALL, UNKNOWN], 90.0, 0.001, None),
        ([SMALL, BIG], 97.0, 1.0, "parameters.min_accuracy: 97 cannot be met; the best available now is 95"),
        ([], 97.0, None, "parameters.min_accuracy: 97 cannot be met; nothing is warm now"),
        (
            [SMALL, BIG],
            90.0,
            0.010,
            "parameters.latency_ms: 10 is too short for every variant that is warm now; the nearest is 'big' with an "
            "accuracy of 95 in about 40 ms; within that time the best is 'small' with 80",
        ),
        (
            [SLOW, SLOWEST],
            None,
            0.001,
            "parameters.latency_ms: 1 is too short for every variant that is warm now; the nearest is 'small' with an "
            "accuracy of 80 in about 1230 ms",
        ),
    ],
)
def test_constraints_that_no_variant_meets_are_answered_with_the_nearest(able, min_accuracy, latency_s, says):
    assert constraints.unmet(able, min_accuracy, latency_s) == says


class OneDevice:
    def __init__(self, variants: dict[int, float]):
        self._variants = variants

    def warm(self, name: str) -> list:
        return [("d0", WarmVariant(id, f"v{id}", name, accuracy, True)) for id, accuracy in self._variants.items()]


def test_a_query_that_comes_to_another_core_is_restricted_by_what_that_one_has():
    shape = RequestShape(1, (TensorHeader("x", "FP32", (1, 4), 16),))
    query = V2Query("", Terms(shape, 1, (), 16, None, 90.0), (bytes(16),), None)
    flight = InFlightQuery(1, application("numbers"), query, None, 0.0, print, None)
    for variants, permitted in (({1: 95.0, 2: 80.0}, {1}), ({3: 92.0}, None)):
        Constraints(Catalog(), OneDevice(variants)).restrict(flight)
        assert flight.query_class.permitted == permitted


def test_over_http_and_grpc_alike_the_nearest_is_named_and_what_can_be_had_is_given(gateways, devices):
    big, small = devices("d0", "d1")
    big.warm(("numbers", "big"))
    small.warm(("numbers", "small"))
    placed = {"d0": [("numbers", "big")], "d1": [("numbers", "small")]}
    endpoints = {"d0": big.endpoint, "d1": small.endpoint}
    gateway = gateways(config(plan(1, placed, endpoints, row_s=0.02), [application("numbers")]))
    gateway.wait_ready()
    wait_for(lambda: all(d["warm"] for d in gateway.health()["devices"].values()), "both are warm")
    refused = gateway.infer(X, min_accuracy=90, latency_ms=5)
    assert refused.status_code == 503
    expected = "parameters.latency_ms: 5 is too short for every variant that is warm now; the nearest is 'big' with an"
    assert refused.json()["error"].startswith(expected)
    assert int(refused.headers["Retry-After"]) >= 1
    with triton.InferenceServerClient(gateway.grpc) as client:
        x = triton.InferInput("x", [1, 4], "FP32").set_data_from_numpy(np.array(X, np.float32))
        insists = {"min_accuracy": 90, "latency_ms": 5}
        with pytest.raises(InferenceServerException) as error:
            client.infer("numbers", [x], headers=KEYED, parameters=insists)
        assert error.value.status() == "StatusCode.UNAVAILABLE" and expected in error.value.message()
        answer = client.infer("numbers", [x], headers=KEYED, parameters=insists | {"latency_ms": 30_000})
        assert answer.get_response().model_version == "big"
    # A query that insists on nothing gets the best there is while that has time.
    for insists, version in (({}, "big"), ({"min_accuracy": 90}, "big"), ({"version": "small"}, "small")):
        assert {gateway.infer(X, **insists).json()["model_version"] for _ in range(6)} == {version}
    # Nothing is kept of what was so once.
    big.kill()
    wait_for(lambda: not gateway.health()["devices"]["d0"]["connected"], "d0 is gone")
    gone = gateway.infer(X, min_accuracy=90, latency_ms=30_000)
    assert gone.status_code == 503
    assert "min_accuracy: 90 cannot be met; the best available now is 80" in gone.json()["error"]
    gone = gateway.infer(X, version="big")
    assert gone.status_code == 503
    assert "no device has this variant of numbers warm now" in gone.json()["error"]
