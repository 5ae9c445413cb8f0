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
        # Without model selection, model placement, adaptive batching (plans have one row a batch), query assignment.
        published("proteus-wo-ms", "proteus", "shares"),
        published("proteus-wo-mp", "proteus", "shares"),
        published("proteus-wo-ab", "proteus", "shares"),
        published("proteus-wo-qa", "proteus", "uniform"),
    ),
    routers={"uniform": uniform},
    placed_once=frozenset({"proteus-wo-mp"}),
)
