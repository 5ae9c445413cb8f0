"""Shapes of queries' inputs: which queries may share a run, and size classes.

Pure; for both ends of a frame. A run takes arrays: queries whose inputs differ in any dimension but the first cannot
share one, unless the application has them padded (``ApplicationSpec.padding``). An application's declared sizes make
its *size classes*: a query belongs to the smallest one that holds all of its open dimensions. A class is named by its
size; 0 is the class of the largest size, and the only one where fewer than two are declared. Whatever holds for it
holds for every query.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import pairwise
from math import prod

from .specs import ApplicationSpec, ProfilePoint, Signature

#: sizes that open dimensions are tried at where the application declares none, until a model takes one: tokens, then
#: sides of images, then samples of sound
OPEN_SIZES = (16, 64, 224, 1, 512, 4096, 16_000)
#: elements of an input's row, beyond which a size is not tried
_MOST_ELEMENTS = 2**24


def key(application: ApplicationSpec, shapes: Sequence[tuple[int, ...]]) -> Hashable:
    """Return the shape that queries must share to run together.

    ``shapes``: whole shapes of the inputs, in the signature's order. Queries of different size classes do not, even
    where they are padded: a short one would take as long as a long one.
    """
    padding = application.padding
    if not padding:
        return tuple([shape[1:] for shape in shapes])
    inputs = application.signature.inputs
    alike = tuple([padding.get(spec.name, shape[1:]) for spec, shape in zip(inputs, shapes, strict=True)])
    return (size_class(application, shapes), *alike) if len(application.sizes) > 1 else alike


def has_open(signature: Signature) -> bool:
    return any(size < 0 for spec in signature.inputs for size in spec.shape[1:])


def open_sizes(signature: Signature) -> tuple[int, ...]:
    """Sizes of :data:`OPEN_SIZES` at which rows are not too large to be tried."""

    def elements(size: int) -> int:
        return max(prod(size if own < 0 else own for own in spec.shape[1:]) for spec in signature.inputs)

    return tuple(size for size in OPEN_SIZES if size == OPEN_SIZES[0] or elements(size) <= _MOST_ELEMENTS)


def extent(signature: Signature, shapes: Sequence[tuple[int, ...]]) -> int:
    """Return the largest of a query's open dimensions, at least 1.

    It is 0 where no dimension is open. ``shapes`` as in :func:`key`.
    """
    largest = 0
    for spec, shape in zip(signature.inputs, shapes, strict=True):
        for want, size in zip(spec.shape[1:], shape[1:], strict=True):
            if want < 0:
                largest = max(largest, size, 1)
    return largest


def size_class(application: ApplicationSpec, shapes: Sequence[tuple[int, ...]]) -> int:
    if len(application.sizes) < 2:
        return 0
    return class_holding(application, extent(application.signature, shapes))


def class_holding(application: ApplicationSpec, size: int) -> int:
    """The smallest class that holds queries as large as ``size``."""
    sizes = application.sizes
    place = bisect_left(sizes, size)
    return sizes[place] if place < len(sizes) - 1 else 0


def classes(application: ApplicationSpec) -> tuple[int, ...]:
    """The application's size classes, the one of the largest size (0) first."""
    return (0, *application.sizes[:-1])


def distinct_sizes(sizes: Sequence[int], profiled: Collection[int]) -> tuple[int, ...]:
    """Return the declared ``sizes``, ascending, that differ in latency.

    Left out are those whose queries take as long as those of the next larger one.

    Args:
        profiled: classes that profiles of the application's variants distinguish (``ProfilePoint.size``).
    """
    distinct = (size for size, above in pairwise(sizes) if any(size <= known < above for known in profiled))
    return (*distinct, *sizes[-1:])


def of_class(points: Iterable[ProfilePoint], size: int) -> tuple[ProfilePoint, ...]:
    """Return the part of a profile for queries as large as ``size``.

    It has the points of the smallest profiled class that holds them, of the largest one for 0.
    """
    known = tuple(points)
    holding = min((point.size for point in known if size and point.size >= size), default=0)
    return tuple(point for point in known if point.size == holding)
