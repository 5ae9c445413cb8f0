"""RAMSIS' policies: the variant to run by queue length and slack time.

The length is that of a worker's queue, and the slack time that of its head. Source: Mendoza et al., "Model Selection
for Latency-Critical Inference Serving" (EuroSys '24). ``strategy`` deals the devices, ``worker`` describes a worker,
``arrivals`` what reaches it, ``transitions`` its Markov decision process, :func:`.solve.solve` the optimal policy,
:func:`.expectation.expected` what it promises, :func:`.load_policies.policies` those for a range of loads;
``load_limits`` and ``by_load`` are the paper's baselines.
"""

from functools import partial

from workers.dispatch.stack import published

from ..paper import Paper
from .by_load import ByLoadPolicy, ShortestQueueRouter
from .strategy import PROCESSES, STRATEGIES, promised

_LOAD = "The most accurate variant"
PAPER = Paper(
    strategies=STRATEGIES,
    simulated=(
        published(
            "ramsis-by-decisions",
            "ramsis",
            "shares",
            "RAMSIS with its published reward, which counts batches rather than queries.",
        ),
        published(
            "ramsis-gamma",
            "ramsis",
            "shares",
            "RAMSIS with policies for bursty arrivals, whose gaps follow a Gamma law.",
        ),
        published(
            "ramsis-shortest-queue",
            "ramsis",
            "shortest-queue",
            "RAMSIS with queries sent to the shortest queue, and policies made for that.",
        ),
        published(
            "ramsis-variable",
            "ramsis",
            "shares",
            "RAMSIS with batches that may leave queries behind, where that is more accurate.",
        ),
        published("ramsis-by-models", "ramsis", "shares", "RAMSIS with a slack time for each time that a batch takes."),
        published(
            "ramsis-known-load",
            "ramsis",
            "shares",
            "RAMSIS with policies for the planned demand alone, whatever load is measured.",
        ),
        published(
            "jellyfish+",
            "by-load",
            "shortest-queue",
            f"{_LOAD} whose throughput carries the load, on all devices, as RAMSIS extends Jellyfish.",
        ),
        published(
            "modelswitching",
            "by-load",
            "shortest-queue",
            f"{_LOAD} that answers the load in time, on all devices, as in ModelSwitching.",
        ),
    ),
    policies={"by-load": ByLoadPolicy},
    routers={"shortest-queue": lambda _seed: ShortestQueueRouter()},
    promises={name: partial(promised, process=process) for name, process in PROCESSES.items()},
)
