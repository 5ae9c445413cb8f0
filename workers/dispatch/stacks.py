"""The stacks: names for an allocation strategy, a binding and a batch policy.

A name means the same live and simulated. A stack is chosen for the whole cluster. The control plane plans with its
strategy; cores switch to its binding and batch policy when they adopt a plan that names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LATE, PUBLISHED = "late", "published"
#: the routing of late binding, which has no router
LATE_BINDING = "late-binding"


@dataclass(frozen=True)
class Stack:
    """One way to serve.

    Attributes:
        strategy: the allocation strategy that makes the plans (see ``scheduler/allocation``).
        binding: ``late``: queries wait until a device is nearly free; ``published``: a router assigns each query to a
            device on arrival.
        routing: the router by which devices are chosen (see :data:`workers.dispatch.published.routing.ROUTERS`).
        batching: the batch policy (see :data:`workers.dispatch.published.batching.POLICIES`).
        title: one sentence for operators.
        live: False: for simulations only.
    """

    name: str
    strategy: str
    binding: Literal["late", "published"]
    routing: str
    batching: str
    title: str
    live: bool = True


def _published(name: str, batching: str, routing: str, title: str, live: bool = True) -> Stack:
    return Stack(name, name, PUBLISHED, routing, batching, title, live)


DEFAULT = "nereus"
#: by name, the default first
STACKS: dict[str, Stack] = {
    stack.name: stack
    for stack in (
        Stack(
            DEFAULT,
            "nereus",
            LATE,
            LATE_BINDING,
            "nereus",
            "Queries wait until a device is nearly free; then batch, variant and device are chosen together.",
        ),
        _published(
            "proteus",
            "proteus",
            "shares",
            "The most accurate variants that serve the demand, queries by their shares, as in Proteus (ASPLOS '24).",
        ),
        # INFaaS sends a query to the least loaded worker with an active instance, and its batches wait for no others.
        _published(
            "infaas-accuracy",
            "nexus",
            "active-first",
            "Variants are copied, upgraded and downgraded one step at a time, as in INFaaS (ATC '21).",
        ),
        _published(
            "infaas-ilp",
            "nexus",
            "active-first",
            "The cheapest instances that serve the demand, by integer linear programming, as in INFaaS (ATC '21).",
            live=False,
        ),
        _published(
            "infaas-greedy",
            "nexus",
            "active-first",
            "Instances are copied, upgraded or removed, whichever is cheapest, as in INFaaS (ATC '21).",
        ),
        _published(
            "clipper+",
            "nexus",
            "active-first",
            "One variant of each application, placed once, under INFaaS' dispatcher, as INFaaS extends Clipper.",
            live=False,
        ),
        _published(
            "sm+",
            "nexus",
            "active-first",
            "As many instances of one variant as the load asks for, as INFaaS extends SageMaker.",
            live=False,
        ),
        _published(
            "clipper-ht",
            "clipper",
            "shares",
            "Only the least accurate variant of each application, whatever the demand, as in Clipper (NSDI '17).",
            live=False,
        ),
        _published(
            "clipper-ha",
            "clipper",
            "shares",
            "Only the most accurate variant of each application, whatever the demand, as in Clipper (NSDI '17).",
        ),
        _published(
            "sommelier",
            "proteus",
            "shares",
            "Applications keep the devices of their first plan, on which variants follow the demand, as in Sommelier.",
            live=False,
        ),
        _published(
            "proteus-wo-ms",
            "proteus",
            "shares",
            "Proteus without model selection: only the most accurate variant of each application.",
            live=False,
        ),
        _published(
            "proteus-wo-mp",
            "proteus",
            "shares",
            "Proteus without model placement: applications keep the devices of their first plan.",
            live=False,
        ),
        # The plan allows no more than one row a batch.
        _published(
            "proteus-wo-ab",
            "proteus",
            "shares",
            "Proteus without adaptive batching: every query runs alone.",
            live=False,
        ),
        # Every worker gets each K-th query.
        _published(
            "ramsis",
            "ramsis",
            "shares",
            "Devices choose variants by policies for their queue, its first deadline and the load, as in RAMSIS.",
        ),
        _published(
            "ramsis-by-decisions",
            "ramsis",
            "shares",
            "RAMSIS with its published reward, which counts batches rather than queries.",
            live=False,
        ),
        _published(
            "ramsis-gamma",
            "ramsis",
            "shares",
            "RAMSIS with policies for bursty arrivals, whose gaps follow a Gamma law.",
            live=False,
        ),
        _published(
            "ramsis-shortest-queue",
            "ramsis",
            "shortest-queue",
            "RAMSIS with queries sent to the shortest queue, and policies made for that.",
            live=False,
        ),
        _published(
            "ramsis-variable",
            "ramsis",
            "shares",
            "RAMSIS with batches that may leave queries behind, where that is more accurate.",
            live=False,
        ),
        _published(
            "jellyfish+",
            "by-load",
            "shortest-queue",
            "The most accurate variant whose throughput carries the load, on all devices, as RAMSIS extends Jellyfish.",
            live=False,
        ),
        _published(
            "modelswitching",
            "by-load",
            "shortest-queue",
            "The most accurate variant that answers the load in time, on all devices, as in ModelSwitching.",
            live=False,
        ),
        # Batches have one row; what cannot be in time is dropped before it runs.
        _published(
            "infadapter",
            "nexus",
            "shares",
            "Cores and quotas for each variant by accuracy, cost and loads, as in InfAdapter (EuroMLSys '23).",
        ),
        _published(
            "ms+",
            "nexus",
            "shares",
            "One variant for each application and its cores, by the objective of InfAdapter.",
            live=False,
        ),
        _published(
            "vpa+",
            "nexus",
            "shares",
            "Only the most accurate variant, on as many cores as it is seen to use, as in Kubernetes' autoscaler.",
            live=False,
        ),
        _published(
            "vpa+-middle",
            "nexus",
            "shares",
            "The same with the variant of middle accuracy.",
            live=False,
        ),
        _published(
            "vpa+-fast",
            "nexus",
            "shares",
            "The same with the least accurate variant.",
            live=False,
        ),
        _published(
            "ramsis-by-models",
            "ramsis",
            "shares",
            "RAMSIS with a slack time for each time that a batch takes.",
            live=False,
        ),
        _published(
            "ramsis-known-load",
            "ramsis",
            "shares",
            "RAMSIS with policies for the planned demand alone, whatever load is measured.",
            live=False,
        ),
        _published(
            "proteus-wo-qa",
            "proteus",
            "uniform",
            "Proteus without query assignment: every device of an application gets as many queries.",
            live=False,
        ),
    )
}
#: the names that a cluster may serve with, the default first
LIVE = tuple(name for name, stack in STACKS.items() if stack.live)
