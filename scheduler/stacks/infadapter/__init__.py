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

PAPER = Paper(
    strategies={
        "infadapter": infadapter,
        "ms+": model_switching,
        "vpa+": partial(vertical, rank=-1),
        "vpa+-middle": partial(vertical, rank=None),
        "vpa+-fast": partial(vertical, rank=0),
    },
    # Batches have one row; what cannot be in time is dropped before it runs.
    simulated=tuple(published(name, "nexus", "shares") for name in ("ms+", "vpa+", "vpa+-middle", "vpa+-fast")),
)
