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
from workers.protocol.specs import ApplicationSpec, TensorSpec

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
        try:
            _check(shape, self.spec)
        except InvalidQuery as error:
            return str(error)
        return CheckedShape(shape, self.spec)


def _check(shape: RequestShape, application: ApplicationSpec) -> None:
    if not 1 <= shape.rows <= MAX_ROWS:
        raise InvalidQuery(f"rows: must be from 1 to {MAX_ROWS}, not {shape.rows}")
    if any(header.nbytes < 0 for header in shape.inputs):
        raise InvalidQuery("inputs: nbytes must not be negative")
    given = {header.name: header for header in shape.inputs}
    if len(given) != len(shape.inputs):
        raise InvalidQuery("inputs: each name may appear once")
    signature = application.signature
    unknown = given.keys() - {spec.name for spec in signature.inputs}
    if unknown:
        raise InvalidQuery(f"inputs: {sorted(unknown)[0]!r} is not an input of {application.name}")
    for spec in signature.inputs:
        if spec.name not in given:
            raise InvalidQuery(f"inputs: {spec.name!r} is missing")
        _check_input(given[spec.name], spec, shape.rows)
    names = [spec.name for spec in signature.inputs]
    if [header.name for header in shape.inputs] != names:
        raise InvalidQuery(f"inputs: must be in the order of {application.name}: {', '.join(names)}")
    output_names = {spec.name for spec in signature.outputs}
    for name in shape.outputs:
        if name not in output_names:
            raise InvalidQuery(f"outputs: {name!r} is not an output of {application.name}")


def _check_input(header: TensorHeader, spec: TensorSpec, rows: int) -> None:
    if header.datatype != spec.datatype:
        raise InvalidQuery(f"{spec.name}: datatype must be {spec.datatype}, not {header.datatype}")
    if len(header.shape) != len(spec.shape) or any(
        wanted not in (-1, size) for size, wanted in zip(header.shape, spec.shape, strict=True)
    ):
        raise InvalidQuery(f"{spec.name}: shape must be {list(spec.shape)}, not {list(header.shape)}")
    if header.shape[0] != rows:
        raise InvalidQuery(f"{spec.name}: must have the query's {rows} rows, its shape is {list(header.shape)}")


def _plain(header: TensorHeader) -> tuple[np.dtype | None, int]:
    """Return type and number of elements; None: only :func:`~.codec.decode` can check."""
    dtype, count = DTYPES.get(header.datatype), math.prod(header.shape)
    fits = dtype is not None and min(header.shape) >= 0 and count * dtype.itemsize == header.nbytes
    return (dtype, count) if fits and count else (None, 0)
