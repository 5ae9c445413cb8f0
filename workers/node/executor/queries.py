"""A waiting query, and the checks that a submitted one must pass."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from workers.protocol import shapes
from workers.protocol.frames import FrameConnection, FrameError, Grant, Submit, TensorHeader, split_body
from workers.protocol.specs import ApplicationSpec, Signature

from .codec import DTYPES, CodecError, decode

#: above this no device could hold the inputs; it also keeps row counts out of overflow's reach
MAX_ROWS = 1_000_000
_ids = itertools.count(1)


class Invalid(ValueError):
    """The query is wrong in itself; no device will do better."""


class Query:
    """One query of one gateway. ``id`` is this executor's own: gateways number theirs independently.

    ``arrived`` and ``deadline``: seconds on the event loop's clock. ``arrays``: inputs by name, rows first.
    ``form``: what two queries must share to stand in one batch. ``extent``: the largest of its open dimensions, 0 where
    the application declares no sizes. ``padding``: inputs that may be padded for that, and with what.
    """

    __slots__ = (
        "arrays",
        "arrived",
        "connection",
        "deadline",
        "extent",
        "form",
        "id",
        "lane",
        "padding",
        "rows",
        "submit",
    )

    def __init__(
        self,
        submit: Submit,
        connection: FrameConnection,
        arrays: dict[str, np.ndarray],
        now: float,
        application: ApplicationSpec,
    ):
        self.id = next(_ids)
        self.arrived = now
        self.deadline = now + submit.budget_s
        self.rows = submit.rows
        self.submit = submit
        self.connection = connection
        self.arrays = arrays
        given = [array.shape for array in arrays.values()]
        self.form = shapes.key(application, given)
        self.extent = shapes.extent(application.signature, given) if application.sizes else 0
        self.padding = application.padding
        #: the lane or granted batch that it waits in; kept by these, which know queries and not the other way round
        self.lane: Any = None


def split(grant: Grant, body: memoryview) -> list[tuple[Submit, memoryview]]:
    """A grant's queries as if each had come by itself, with its part of the body. Where the parts do not add up to
    the body, :func:`read` says so of each query that is short or, by its last one, of the rest."""
    parts, offset = [], 0
    last = len(grant.queries) - 1
    for i, query in enumerate(grant.queries):
        submit = Submit(query.id, grant.application, query.budget_s, query.rows, query.inputs, query.outputs)
        end = offset + sum(max(0, header.nbytes) for header in query.inputs)
        parts.append((submit, body[offset:] if i == last else body[offset:end]))
        offset = end
    return parts


def read(submit: Submit, body: memoryview, application: ApplicationSpec) -> dict[str, np.ndarray]:
    """The inputs, in the signature's order.

    Raises:
        Invalid: naming the field and what it must be.
    """
    if not 1 <= submit.rows <= MAX_ROWS:
        raise Invalid(f"rows: must be from 1 to {MAX_ROWS}, not {submit.rows}")
    if not -3600.0 <= submit.budget_s <= 86400.0:
        raise Invalid(f"budget_s: must be from -3600 to 86400, not {submit.budget_s}")
    try:
        size, places = _layout(submit.inputs, submit.outputs, submit.rows, application.name, application.signature)
    except Invalid:
        # Where the body does not add up, nothing that its headers say is worth telling.
        _check_size(submit, body)
        raise
    if size != len(body):
        _check_size(submit, body)
    arrays = {}
    for header, start, dtype, count in places:
        if dtype is not None:
            array = np.frombuffer(body, dtype, count, start)
            if array.flags.aligned:
                arrays[header.name] = array.reshape(header.shape)
                continue
        try:
            arrays[header.name] = decode(header, body[start : start + header.nbytes])
        except CodecError as error:
            raise Invalid(str(error)) from None
    return arrays


def _check_size(submit: Submit, body: memoryview) -> None:
    try:
        split_body(submit.inputs, body)
    except FrameError as error:
        raise Invalid(f"inputs: {error}") from None


@functools.lru_cache(maxsize=1024)
def _layout(
    inputs: tuple[TensorHeader, ...], outputs: tuple[str, ...], rows: int, application: str, signature: Signature
) -> tuple[int, tuple[tuple[TensorHeader, int, np.dtype | None, int], ...]]:
    """All that can be said of a query without its tensors: bytes of its body, and of each input, in the signature's
    order, where it begins, its type (None: only :func:`~.codec.decode` can tell) and its number of elements. Queries of
    an application are of few forms, and each is checked once.

    Raises:
        Invalid: naming the field and what it must be.
    """
    if any(header.nbytes < 0 for header in inputs):
        raise Invalid("inputs: nbytes must not be negative")
    starts = [0, *itertools.accumulate(header.nbytes for header in inputs)]
    given = {header.name: (header, start) for header, start in zip(inputs, starts, strict=False)}
    if len(given) != len(inputs):
        raise Invalid("inputs: each name may appear once")
    unknown = given.keys() - {spec.name for spec in signature.inputs}
    if unknown:
        raise Invalid(f"inputs: {sorted(unknown)[0]!r} is not an input of {application}")
    for spec in signature.inputs:
        if spec.name not in given:
            raise Invalid(f"inputs: {spec.name!r} is missing")
        header, _ = given[spec.name]
        if header.datatype != spec.datatype:
            raise Invalid(f"{spec.name}: datatype must be {spec.datatype}, not {header.datatype}")
        if len(header.shape) != len(spec.shape) or any(
            wanted not in (-1, size) for size, wanted in zip(header.shape, spec.shape, strict=True)
        ):
            raise Invalid(f"{spec.name}: shape must be {list(spec.shape)}, not {list(header.shape)}")
        if header.shape[0] != rows:
            raise Invalid(f"{spec.name}: must have the query's {rows} rows, its shape is {list(header.shape)}")
    known = {spec.name for spec in signature.outputs}
    for name in outputs:
        if name not in known:
            raise Invalid(f"outputs: {name!r} is not an output of {application}")
    return starts[-1], tuple((*given[spec.name], *_plain(given[spec.name][0])) for spec in signature.inputs)


def _plain(header: TensorHeader) -> tuple[np.dtype | None, int]:
    dtype, count = DTYPES.get(header.datatype), math.prod(header.shape)
    fits = dtype is not None and min(header.shape) >= 0 and count * dtype.itemsize == header.nbytes
    return (dtype, count) if fits and count else (None, 0)
