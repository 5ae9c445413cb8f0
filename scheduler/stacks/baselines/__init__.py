"""Clipper and Sommelier, as Proteus' evaluation defines them (Section 6.1.1)."""

from workers.dispatch.stack import published

from ..paper import Paper
from .strategies import clipper_ha, clipper_ht, sommelier

PAPER = Paper(
    strategies={"clipper-ht": clipper_ht, "clipper-ha": clipper_ha, "sommelier": sommelier},
    simulated=(published("clipper-ht", "clipper", "shares"), published("sommelier", "proteus", "shares")),
    placed_once=frozenset({"clipper-ht", "clipper-ha", "sommelier"}),
)
