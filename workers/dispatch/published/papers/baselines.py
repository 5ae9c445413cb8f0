"""Clipper with a static placement (NSDI '17), as Proteus compares with it (ASPLOS '24, Section 6.1.1)."""

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
