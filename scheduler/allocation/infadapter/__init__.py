"""InfAdapter and its baselines: how many cores each variant gets.

Source: Salmani et al., "Reconciling High Accuracy, Cost-Efficiency, and Low Latency of Inference Serving Systems"
(EuroMLSys '23). ``weighing`` solves its Eq. 1, ``placing`` puts the answer on devices, ``vertical`` is Kubernetes'
autoscaler. Pure. Entry point: :data:`STRATEGIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ..problem import Allocation, Problem
from .adapter import infadapter, model_switching
from .vertical import vertical

STRATEGIES: Mapping[str, Callable[[Problem], Allocation]] = {
    "infadapter": infadapter,
    "ms+": model_switching,
    "vpa+": partial(vertical, rank=-1),
    "vpa+-middle": partial(vertical, rank=None),
    "vpa+-fast": partial(vertical, rank=0),
}
