"""Which queries may stand in one run, by the shapes of their inputs. Pure; both ends of a frame go by it.

A run takes arrays: queries whose inputs differ in any dimension but the first cannot share one, unless the application
has them padded (``ApplicationSpec.padding``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from .specs import ApplicationSpec

#: sizes that open dimensions are tried at where the application declares none, until a model takes one: tokens, then
#: sides of images
OPEN_SIZES = (16, 64, 224, 1)


def key(application: ApplicationSpec, shapes: Iterable[tuple[str, Sequence[int]]]) -> Hashable:
    """What two queries must share to run together.

    Args:
        shapes: (input, its whole shape), in the signature's order.
    """
    padding = application.padding
    if not padding:
        return tuple([tuple(shape[1:]) for _, shape in shapes])
    return tuple([padding[name] if name in padding else tuple(shape[1:]) for name, shape in shapes])
