"""Systems and ablations that Nereus is compared with.

Sources: Ahmad et al., "Proteus" (ASPLOS '24), Section 6.1.1 (baselines) and Section 6.5 (ablations), whose evaluation
defines them. INFaaS with its own objective, the cost, and its baselines `clipper+` and `sm+`: Romero et al., "INFaaS"
(ATC '21), Sections 4.2 and 6. All of them dedicate a device to one variant (Eq. 5), and keep the rules of
:mod:`scheduler.allocation.verification` as any strategy does. Their batching and routing are defined in
:mod:`workers.dispatch.stacks`.

Exclusions and pins apply to all strategies where these are registered; floors, which none of these systems has, are
ignored. None has a clock or a memory of its own: a static placement is read from ``Problem.previous``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..problem import Allocation, Problem
from .ablations import without_adaptive_batching, without_model_selection, without_query_assignment
from .clipper import clipper_ha, clipper_ht, clipper_plus
from .infaas import infaas_accuracy
from .infaas_greedy import infaas_greedy, sm_plus
from .infaas_ilp import infaas_ilp
from .sommelier import sommelier, without_model_placement

#: strategies that place applications once, for good
PLACED_ONCE = frozenset({"clipper-ht", "clipper-ha", "clipper+", "sommelier", "proteus-wo-mp"})

BASELINES: Mapping[str, Callable[[Problem], Allocation]] = {
    "clipper-ht": clipper_ht,
    "clipper-ha": clipper_ha,
    "sommelier": sommelier,
    "infaas-accuracy": infaas_accuracy,
    "infaas-ilp": infaas_ilp,
    "infaas-greedy": infaas_greedy,
    "clipper+": clipper_plus,
    "sm+": sm_plus,
    "proteus-wo-ms": without_model_selection,
    "proteus-wo-mp": without_model_placement,
    "proteus-wo-ab": without_adaptive_batching,
    "proteus-wo-qa": without_query_assignment,
}
