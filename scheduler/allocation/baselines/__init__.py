"""The systems and ablations that Nereus is compared with, as Proteus' evaluation defines them.

Source: Ahmad et al., "Proteus" (ASPLOS '24), Section 6.1.1 (baselines) and Section 6.5 (ablations). All of them
dedicate a device to one variant (Eq. 5), and keep the rules of :mod:`scheduler.allocation.verification` as any strategy
does. Their batching and routing are defined in :mod:`workers.dispatch.stacks`.

Exclusions and pins apply to all strategies where these are registered; floors, which none of these systems has, are
ignored. None has a clock or a memory of its own: a static placement is read from ``Problem.previous``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..problem import Allocation, Problem
from .ablations import without_adaptive_batching, without_model_selection, without_query_assignment
from .clipper import clipper_ha, clipper_ht
from .infaas import infaas_accuracy
from .sommelier import sommelier, without_model_placement

BASELINES: Mapping[str, Callable[[Problem], Allocation]] = {
    "clipper-ht": clipper_ht,
    "clipper-ha": clipper_ha,
    "sommelier": sommelier,
    "infaas-accuracy": infaas_accuracy,
    "proteus-wo-ms": without_model_selection,
    "proteus-wo-mp": without_model_placement,
    "proteus-wo-ab": without_adaptive_batching,
    "proteus-wo-qa": without_query_assignment,
}
