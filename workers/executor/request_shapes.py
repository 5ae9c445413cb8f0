"""Request shapes: checked once for all queries that share them. Pure.

An application has few of them, which come again with each batch. On the wire one is a ``RequestShape``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable

import msgspec
import numpy as np

from workers.protocol.frames import RequestShape, TensorHeader, read_shapes
from workers.protocol.shapes import extent, key
from workers.protocol.specs import ApplicationSpec, Signature

from .codec import DTYPES, CodecError, decode

#: above this no device could hold the inputs; it also keeps row counts out of overflow's reach
MAX_ROWS = 1_000_000
#: shapes of one application that are kept, and lists of them; with many lengths of text there may be any number
_KEPT = 1024
#: a list of shapes of more bytes is not kept
_SHORT = 4096


class InvalidQuery(ValueError):
    """The query is wrong in itself; no device will do better."""


class CheckedShape:
    """A request shape that fits its application.

    Attributes:
        nbytes: of all inputs.
        key: what two queries must share to stand in one run.
        extent: the largest of the query's open dimensions; 0 where the application declares no sizes.
        outputs: the names wanted.
        tails: (name, type, shape without the rows, elements a row) of each input in the signature's order, if all their
            bytes can be used as they are; None where an input has to be decoded.
    """

    __slots__ = ("_inputs", "extent", "key", "nbytes", "outputs", "rows", "tails")

    def __init__(self, shape: RequestShape, application: ApplicationSpec):
        whole = [header.shape for header in shape.inputs]
        self.rows = shape.rows
        self.nbytes = sum(header.nbytes for header in shape.inputs)
        self.key: Hashable = key(application, whole)
        self.extent = extent(application.signature, whole) if application.sizes else 0
        self.outputs = shape.outputs or tuple(spec.name for spec in application.signature.outputs)
        self._inputs = tuple((header, *_plain(header)) for header in shape.inputs)
        plain = all(dtype is not None for _, dtype, _ in self._inputs)
        self.tails: tuple[tuple[str, np.dtype, tuple[int, ...], int], ...] | None = (
            tuple((header.name, dtype, header.shape[1:], count // shape.rows) for header, dtype, count in self._inputs)
            if plain
            else None
        )

    def arrays(self, body: memoryview, starts: tuple[int, ...]) -> dict[str, np.ndarray]:
        """One query's inputs, views of ``body`` if possible; raises InvalidQuery."""
        arrays = {}
        for (header, dtype, count), start in zip(self._inputs, starts, strict=True):
            if dtype is not None:
                array = np.frombuffer(body, dtype, count, start)
                if array.flags.aligned:
                    arrays[header.name] = array.reshape(header.shape)
                    continue
            try:
                arrays[header.name] = decode(header, body[start : start + header.nbytes])
            except CodecError as error:
                raise InvalidQuery(str(error)) from None
        return arrays


class CheckedShapes:
    def __init__(self, spec: ApplicationSpec):
        self.spec = spec
        self.padding = spec.padding
        self._shape = functools.lru_cache(_KEPT)(self._shape_or_fault)
        self._list = functools.lru_cache(_KEPT)(self._read)

    def shapes(self, raw: msgspec.Raw) -> tuple[CheckedShape | str, ...]:
        """Return checked shapes, or an error text for each.

        Args:
            raw: ``shapes`` of a :class:`~workers.protocol.frames.ReceivedBatch`.

        Raises:
            msgspec.DecodeError: not a list of request shapes.
        """
        whole = bytes(raw)
        return self._list(whole) if len(whole) <= _SHORT else self._read(whole)

    def _read(self, whole: bytes) -> tuple[CheckedShape | str, ...]:
        return tuple([self._shape(shape) for shape in read_shapes(whole)])

    def _shape_or_fault(self, shape: RequestShape) -> CheckedShape | str:
        if _fits(shape, self.spec.signature):
            return CheckedShape(shape, self.spec)
        given = ", ".join(f"{header.name} {header.datatype} {list(header.shape)}" for header in shape.inputs)
        return f"does not fit the signature of {self.spec.name}: {shape.rows} rows of {given or 'nothing'}"[:500]


def _fits(shape: RequestShape, signature: Signature) -> bool:
    """Whether a device can run it. Gateways tell clients what is wrong before."""
    return (
        1 <= shape.rows <= MAX_ROWS
        and len(shape.inputs) == len(signature.inputs)
        and all(
            (header.name, header.datatype, len(header.shape)) == (spec.name, spec.datatype, len(spec.shape))
            and header.shape[0] == shape.rows
            and all(wanted in (-1, size) for size, wanted in zip(header.shape, spec.shape, strict=True))
            and header.nbytes >= 0
            for header, spec in zip(shape.inputs, signature.inputs, strict=True)
        )
        and {spec.name for spec in signature.outputs}.issuperset(shape.outputs)
    )


def _plain(header: TensorHeader) -> tuple[np.dtype | None, int]:
    """Return type and number of elements; None: only :func:`~.codec.decode` can check."""
    dtype, count = DTYPES.get(header.datatype), math.prod(header.shape)
    fits = dtype is not None and min(header.shape) >= 0 and count * dtype.itemsize == header.nbytes
    return (dtype, count) if fits and count else (None, 0)
