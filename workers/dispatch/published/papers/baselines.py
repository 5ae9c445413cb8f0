"""Clipper (NSDI '17) with a static placement, as Proteus compares with it."""

from ...stack import published

STACKS = (
    published(
        "clipper-ha",
        "clipper",
        "shares",
        "Only the most accurate variant of each application, whatever the demand, as in Clipper (NSDI '17).",
    ),
)
POLICIES, ROUTERS = {}, {}
