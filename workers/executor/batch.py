"""A dispatched batch: read from its frame, checked, and kept until it runs. Pure.

The usual batch is read by columns: queries of the same shapes stand one behind the other in each input's part of the
body, so one view of it is the run's array. Where anything is unusual (a query is wrong, shapes differ, text), every
query is checked by itself and gets arrays of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import ReceivedBatch, read_shapes

from . import padding
from .loaded import Loaded
from .padding import Arrays
from .request_shapes import CheckedShape, CheckedShapes, InvalidQuery

#: bounds of a query's budget in seconds; one that was due long ago is late, not invalid
_LEAST, _MOST = -3600.0, 86400.0


class RefusalInfo(NamedTuple):
    """A query of one gateway, as far as a refusal needs it."""

    connection: FrameConnection
    id: int  # the gateway's number
    application: str
    rows: int
    budget_s: float
    deadline: float  # seconds on the monotonic clock


class DispatchedBatch(msgspec.Struct, eq=False):
    """A batch that was dispatched to this device.

    ``ids``, ``budgets`` and ``shapes`` are columns: one value for each query.
    """

    number: int  # the gateway's own
    application: str
    variant: int  # id
    limit: int  # rows that one run may take
    connection: FrameConnection
    arrived: float  # seconds on the monotonic clock
    padding: dict[str, float]  # value by padded input
    ids: Sequence[int]
    budgets: Sequence[float]  # seconds from ``arrived`` on
    shapes: Sequence[CheckedShape]
    rows: int  # of all queries
    largest: int  # rows of the largest query
    soonest: float  # the earliest deadline
    same: bool  # whether all queries have one shape
    extent: int  # the largest open dimension of its queries (:class:`.request_shapes.CheckedShape`)
    #: the run's inputs in the signature's order, each in one piece with the rows of all queries; None where queries
    #: cannot share an array
    body: memoryview | None
    arrays: list[dict[str, np.ndarray]] | None  # each query's inputs, where ``body`` is None

    def whole(self) -> dict[str, np.ndarray]:
        """``body`` as arrays by name; views of it where they can be."""
        rows, start, whole = self.rows, 0, {}
        for name, dtype, tail, elements in self.shapes[0].tails:
            array = np.frombuffer(self.body, dtype, rows * elements, start)
            start += array.nbytes
            # A column begins anywhere; kernels may rely on aligned elements.
            whole[name] = (array if array.flags.aligned else array.copy()).reshape((rows, *tail))
        return whole

    def inputs(self, places: Sequence[int], most: int = padding.MAX_BYTES) -> Arrays:
        """Inputs of queries that share a run, padded; raises PaddingError beyond ``most`` bytes."""
        self._split()
        return padding.concatenate([self.arrays[place] for place in places], self.padding, most)

    def _split(self) -> None:
        if self.body is None:
            return
        whole, start = self.whole(), 0
        self.body, self.arrays = None, []
        for shape in self.shapes:
            end = start + shape.rows
            self.arrays.append({name: array[start:end] for name, array in whole.items()})
            start = end

    def refusal_infos(self, places: Collection[int] | None = None) -> list[RefusalInfo]:
        """Of the queries at these places; None: of all."""
        connection, application, arrived = self.connection, self.application, self.arrived
        return [
            RefusalInfo(connection, self.ids[k], application, self.shapes[k].rows, budget_s, arrived + budget_s)
            for k, budget_s in enumerate(self.budgets)
            if places is None or k in places
        ]

    def take_late(self, loaded: Loaded, now: float) -> list[RefusalInfo]:
        """The queries that would be late even if they ran at ``now`` and alone, taken out."""
        if loaded.application.late == "serve":
            return []
        if now + loaded.at(self.extent).typical.ceiling(self.largest) <= self.soonest:
            return []
        places = []
        for place, (shape, budget_s) in enumerate(zip(self.shapes, self.budgets, strict=True)):
            if now + loaded.at(shape.extent).typical.seconds(shape.rows) > self.arrived + budget_s:
                places.append(place)
        return self.take_out(places)

    def take_out(self, places: Collection[int]) -> list[RefusalInfo]:
        """Take the queries at these places of the columns out; the others stay."""
        if not places:
            return []
        gone = set(places)
        out = self.refusal_infos(gone)
        self._split()
        self.arrays = _without(self.arrays, gone)
        self.ids, self.budgets = _without(self.ids, gone), _without(self.budgets, gone)
        self.shapes = _without(self.shapes, gone)
        self.rows, self.largest, self.same, self.extent = _sizes(self.shapes)
        self.soonest = self.arrived + min(self.budgets, default=0.0)
        return out


#: rows of all queries, most rows of one, whether all have one shape, largest extent
_Sizes = tuple[int, int, bool, int]


def _sizes(shapes: Sequence[CheckedShape]) -> _Sizes:
    if not shapes:
        return 0, 0, True, 0
    rows = [shape.rows for shape in shapes]
    extent = max([shape.extent for shape in shapes])
    return sum(rows), max(rows), shapes.count(shapes[0]) == len(shapes), extent


def _without(column: Sequence, gone: set[int]) -> list:
    return [value for k, value in enumerate(column) if k not in gone]


def admit(
    message: ReceivedBatch, body: memoryview, application: CheckedShapes, connection: FrameConnection, now: float
) -> tuple[DispatchedBatch, list[tuple[int, str]]]:
    """Return the batch of valid queries, and (id, error text) of the others."""
    checked = application.shapes(message.shapes)
    alike = _alike(message.queries, checked, len(body))
    if alike is not None:
        (ids, budgets, shapes, sizes), arrays, wrong = alike, None, []
    else:
        ids, budgets, shapes, arrays, wrong = _one_by_one(message, checked, body)
        sizes, body = _sizes(shapes), None
    rows, largest, same, extent = sizes
    batch = DispatchedBatch(
        message.number,
        message.application,
        message.variant,
        max(1, message.max_rows),
        connection,
        now,
        application.padding,
        ids,
        budgets,
        shapes,
        rows,
        largest,
        now + min(budgets, default=0.0),
        same,
        extent,
        body,
        arrays,
    )
    return batch, wrong


def _alike(
    queries: Sequence[tuple[int, int, float]], checked: Sequence[CheckedShape | str], nbytes: int
) -> tuple[Sequence[int], Sequence[float], Sequence[CheckedShape], _Sizes] | None:
    """Columns and sizes, if every query is right and all stand in one array an input."""
    if not queries or not checked:
        return None
    ids, places, budgets = zip(*queries, strict=True)
    count, least = len(ids), min(budgets)
    # A budget that is no number may hide from min and max.
    if not _LEAST <= least <= max(budgets) <= _MOST or math.isnan(sum(budgets)):
        return None
    if len(checked) == 1 and not any(places):
        first = checked[0]
        if type(first) is str or first.tails is None:
            return None
        shapes, size = checked * count, first.nbytes * count
        sizes = first.rows * count, first.rows, True, first.extent
    else:
        if not 0 <= min(places) <= max(places) < len(checked) or any(type(shape) is str for shape in checked):
            return None
        tails = checked[0].tails
        if tails is None or any(shape.tails != tails for shape in checked):
            return None
        shapes = [checked[place] for place in places]
        sizes = _sizes(shapes)
        size = sum([shape.nbytes for shape in shapes])
    return (ids, budgets, shapes, sizes) if size == nbytes else None


def _one_by_one(
    message: ReceivedBatch, shapes: Sequence[CheckedShape | str], body: memoryview
) -> tuple[list[int], list[float], list[CheckedShape], list[dict[str, np.ndarray]], list[tuple[int, str]]]:
    """Columns of the valid queries with their inputs, and (id, error text) of the others."""
    starts, wanted = _starts(message)
    columns: list[tuple[int, float, CheckedShape, dict[str, np.ndarray]]] = []
    wrong: list[tuple[int, str]] = []
    for (id, place, budget_s), at in zip(message.queries, starts, strict=True):
        try:
            if not 0 <= place < len(shapes):
                raise InvalidQuery(f"shape: must be from 0 to {len(shapes) - 1}, not {place}")
            # Where the body's size is wrong, no query's bytes can be assigned.
            if wanted != len(body):
                raise InvalidQuery(f"inputs: body has {len(body)} bytes, its tensors {wanted}")
            if not _LEAST <= budget_s <= _MOST:
                raise InvalidQuery(f"budget_s: must be from {_LEAST:.0f} to {_MOST:.0f}, not {budget_s}")
            shape = shapes[place]
            if isinstance(shape, str):
                raise InvalidQuery(shape)
            columns.append((id, budget_s, shape, shape.arrays(body, at)))
        except InvalidQuery as error:
            wrong.append((id, str(error)))
    return *map(list, zip(*columns, strict=True) if columns else ([], [], [], [])), wrong


def _starts(message: ReceivedBatch) -> tuple[list[tuple[int, ...]], int]:
    """Where each query's inputs begin, and the length that the body must have."""
    nbytes = [[max(0, header.nbytes) for header in shape.inputs] for shape in read_shapes(message.shapes)]
    sizes = [nbytes[place] if 0 <= place < len(nbytes) else [] for _, place, _ in message.queries]
    starts: list[list[int]] = [[] for _ in sizes]
    at = 0
    for column in range(max(map(len, nbytes), default=0)):
        for own_sizes, own_starts in zip(sizes, starts, strict=True):
            if column < len(own_sizes):
                own_starts.append(at)
                at += own_sizes[column]
    return [tuple(places) for places in starts], at
