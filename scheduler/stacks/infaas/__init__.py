"""INFaaS and its own baselines.

Source: Romero et al., "INFaaS: Automated Model-less Inference Serving" (ATC '21). Its system is the greedy heuristic
(:mod:`.greedy`, Section 4.2.2); its integer linear program (:mod:`.ilp`, Section 4.2.1) is "impractical to use".
:mod:`.accuracy` is Proteus' version, with accuracy for the objective. `clipper+` and `sm+` are its extensions of
Clipper and SageMaker (Section 6).
"""

from workers.dispatch.stack import published

from ..paper import Paper
from .accuracy import infaas_accuracy
from .arrivals import HeadroomTrigger
from .greedy import clipper_plus, infaas_greedy, sm_plus
from .ilp import infaas_ilp

PAPER = Paper(
    strategies={
        "infaas-accuracy": infaas_accuracy,
        "infaas-greedy": infaas_greedy,
        "infaas-ilp": infaas_ilp,
        "clipper+": clipper_plus,
        "sm+": sm_plus,
    },
    simulated=tuple(published(name, "nexus", "active-first") for name in ("infaas-ilp", "clipper+", "sm+")),
    placed_once=frozenset({"clipper+"}),
    triggers=dict.fromkeys(("infaas-accuracy", "infaas-ilp", "infaas-greedy", "sm+"), HeadroomTrigger),
)
