"""Proteus and its ablations.

Source: Ahmad et al., "Proteus: A High-Throughput Inference-Serving System with Accuracy Scaling" (ASPLOS '24).
:mod:`.strategy` is its MILP, :mod:`.ablations` are those of its Section 6.5.
"""

from workers.dispatch.stack import published

from ..paper import Paper
from .ablations import (
    uniform,
    without_adaptive_batching,
    without_model_placement,
    without_model_selection,
    without_query_assignment,
)
from .strategy import solve

PAPER = Paper(
    strategies={
        "proteus": solve,
        "proteus-wo-ms": without_model_selection,
        "proteus-wo-mp": without_model_placement,
        "proteus-wo-ab": without_adaptive_batching,
        "proteus-wo-qa": without_query_assignment,
    },
    simulated=(
        published(
            "proteus-wo-ms",
            "proteus",
            "shares",
            "Proteus without model selection: only the most accurate variant of each application.",
        ),
        published(
            "proteus-wo-mp",
            "proteus",
            "shares",
            "Proteus without model placement: applications keep the devices of their first plan.",
        ),
        # The plan allows no more than one row a batch.
        published(
            "proteus-wo-ab",
            "proteus",
            "shares",
            "Proteus without adaptive batching: every query runs alone.",
        ),
        published(
            "proteus-wo-qa",
            "proteus",
            "uniform",
            "Proteus without query assignment: every device of an application gets as many queries.",
        ),
    ),
    routers={"uniform": uniform},
    placed_once=frozenset({"proteus-wo-mp"}),
)
