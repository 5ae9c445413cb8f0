"""Which queries may stand in one run, by the shapes of their inputs. Pure; both ends of a frame go by it.

A run takes arrays: queries whose inputs differ in any dimension but the first cannot share one, unless the application
has them padded (``ApplicationSpec.padding``).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from .specs import ApplicationSpec

#: sizes that open dimensions are tried at where the application declares none, until a model takes one: tokens, then
#: sides of images
OPEN_SIZES = (16, 64, 224, 1)


def key(application: ApplicationSpec, shapes: Sequence[tuple[int, ...]]) -> Hashable:
    """What two queries must share to run together. ``shapes``: whole shapes of the inputs, in the signature's order."""
    padding = application.padding
    if not padding:
        return tuple([shape[1:] for shape in shapes])
    inputs = application.signature.inputs
    return tuple([padding.get(spec.name, shape[1:]) for spec, shape in zip(inputs, shapes, strict=True)])
