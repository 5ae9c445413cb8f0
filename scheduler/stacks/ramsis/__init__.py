"""RAMSIS' policies: the variant to run by queue length and slack time.

The length is that of a worker's queue, and the slack time that of its head. Source: Mendoza et al., "Model Selection
for Latency-Critical Inference Serving" (EuroSys '24). ``strategy`` deals the devices, ``worker`` describes a worker,
``arrivals`` what reaches it, ``transitions`` its Markov decision process, :func:`.solve.solve` the optimal policy,
:func:`.expectation.expected` what it promises, :func:`.load_policies.policies` those for a range of loads;
``load_limits`` has the paper's baselines.
"""

from workers.dispatch.stack import published

from ..paper import Paper
from .load_limits import ByLoadPolicy, ShortestQueueRouter
from .strategy import STRATEGIES

PAPER = Paper(
    strategies=STRATEGIES,
    simulated=(
        # A slack time for each time that a batch takes (MD, Section 4.2.1).
        published("ramsis-by-models", "ramsis", "shares"),
        # Policies for the planned demand alone, whatever load is measured (Section 7.2).
        published("ramsis-known-load", "ramsis", "shares"),
        published("jellyfish+", "by-load", "shortest-queue"),
        published("modelswitching", "by-load", "shortest-queue"),
    ),
    policies={"by-load": ByLoadPolicy},
    routers={"shortest-queue": lambda _seed: ShortestQueueRouter()},
)
