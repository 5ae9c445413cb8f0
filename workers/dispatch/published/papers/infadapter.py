"""InfAdapter (EuroMLSys '23): queries by quotas, in batches of one row."""

from ...stack import published

STACKS = (
    published(
        "infadapter",
        "nexus",
        "shares",
        "Cores and quotas for each variant by accuracy, cost and loads, as in InfAdapter (EuroMLSys '23).",
    ),
)
POLICIES, ROUTERS = {}, {}
