"""Figures of the published simulator, beside the page's own.

Source of the published figures: the simulator of Ahmad et al., "Proteus: A High-Throughput Inference-Serving System
with Accuracy Scaling" (ASPLOS '24), run on its own traces with its MILP solved exactly. It counts as late what is
later than 1,000 ms; here its queries were counted strictly, by the SLO of 300 ms.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quoted:
    """The published simulator on one trace.

    Ratios are from 0 to 1. None: not quoted.

    Attributes:
        printed: violations as it counts them itself.
        accuracy, drop: percent and points.
    """

    violations: float
    printed: float
    accuracy: float
    drop: float
    sommelier: float | None = None
    infaas: float | None = None


#: by trace, in the order of the page
PROTEUS = {
    "zipf_exponential": Quoted(0.331, 0.047, 99.46, 0.64, 0.218, 0.59),
    "medium-normal_load": Quoted(0.332, 0.054, 99.46, 0.76, 0.259, 0.63),
    "zipf_exponential_bursty": Quoted(0.353, 0.067, 99.44, 0.77, 0.393, 0.68),
    "zipf_flat_uniform": Quoted(0.325, 0.031, 99.49, 0.52),
    "zipf_gamma": Quoted(0.677, 0.194, 99.37, 0.77),
}
TRACES = tuple(PROTEUS)
#: relative gap to which Proteus' authors solve
SOLVE_GAP = 0.005
