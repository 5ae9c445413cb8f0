"""InfAdapter and its baselines: how many cores each variant gets.

Source: Salmani et al., "Reconciling High Accuracy, Cost-Efficiency, and Low Latency of Inference Serving Systems"
(EuroMLSys '23). ``weighing`` solves its Eq. 1, ``placing`` puts the answer on devices, ``vertical`` is Kubernetes'
autoscaler.
"""

from functools import partial

from workers.dispatch.stack import published

from ..paper import Paper
from .adapter import infadapter, model_switching
from .vertical import vertical

# Batches have one row; what cannot be in time is dropped before it runs.
PAPER = Paper(
    strategies={
        "infadapter": infadapter,
        "ms+": model_switching,
        "vpa+": partial(vertical, rank=-1),
        "vpa+-middle": partial(vertical, rank=None),
        "vpa+-fast": partial(vertical, rank=0),
    },
    simulated=(
        published(
            "ms+",
            "nexus",
            "shares",
            "One variant for each application and its cores, by the objective of InfAdapter.",
        ),
        published(
            "vpa+",
            "nexus",
            "shares",
            "Only the most accurate variant, on as many cores as it is seen to use, as in Kubernetes' autoscaler.",
        ),
        published("vpa+-middle", "nexus", "shares", "The same with the variant of middle accuracy."),
        published("vpa+-fast", "nexus", "shares", "The same with the least accurate variant."),
    ),
)
