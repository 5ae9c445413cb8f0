"""Splits a batch's :class:`~.frames.Results` into the queries' answers. Pure."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from .frames import Results, ResultTensor, TensorHeader
from .framing import FrameError

Answer = tuple[tuple[TensorHeader, ...], Sequence[memoryview]]


def answers(results: Results, body: memoryview) -> list[Answer]:
    """Return headers and packed data of the outputs of each query.

    They are in the order of ``results.ids``. Answers of equal shapes share their headers; the data is not copied.

    Raises:
        FrameError: numbers of rows or bytes that do not add up.
    """
    count = len(results.ids)
    if len(results.outputs) == 1 and not results.rows:
        # One output, and a row a query: this is what most answers are.
        output = results.outputs[0]
        size = output.nbytes // count
        if not output.sizes and output.shape[:1] == (count,) and size * count == output.nbytes == len(body):
            header = _alike(output.name, output.datatype, (1, *output.shape[1:]), size)
            if not size:
                return [(header, (body,))] * count
            return [(header, (body[start : start + size],)) for start in range(0, size * count, size)]
    rows = results.rows or (1,) * count
    if len(rows) != count:
        raise FrameError(f"rows: has {len(rows)} numbers for {count} queries")
    if min(rows) < 1:
        raise FrameError(f"rows: must be at least 1 each, not {min(rows)}")
    total = sum(rows)
    columns: list[list[memoryview]] = []
    offset = 0
    for output in results.outputs:
        if not output.shape or output.shape[0] != total:
            raise FrameError(f"{output.name}: has shape {list(output.shape)}, its queries {total} rows")
        sizes = output.sizes or _sizes(output, rows, total)
        if len(sizes) != count or sum(sizes) != output.nbytes:
            raise FrameError(f"{output.name}: sizes of {len(sizes)} parts do not add up to {output.nbytes} bytes")
        column = []
        for size in sizes:
            column.append(body[offset : offset + size])
            offset += size
        columns.append(column)
    if offset != len(body):
        raise FrameError(f"body has {len(body)} bytes, its tensors {offset}")
    headers = _headers(results, rows, columns)
    if len(columns) == 1:
        return [(header, (part,)) for header, part in zip(headers, columns[0], strict=True)]
    return [(headers[i], [column[i] for column in columns]) for i in range(count)]


@functools.lru_cache(maxsize=1024)
def without_rows(headers: tuple[TensorHeader, ...]) -> tuple[TensorHeader, ...]:
    """Return headers of a one-row answer without the row, as the client's signature."""
    return tuple([TensorHeader(one.name, one.datatype, one.shape[1:], one.nbytes) for one in headers])


@functools.lru_cache(maxsize=1024)
def _alike(name: str, datatype: str, shape: tuple[int, ...], nbytes: int) -> tuple[TensorHeader, ...]:
    return (TensorHeader(name, datatype, shape, nbytes),)


def _sizes(output: ResultTensor, rows: Sequence[int], total: int) -> list[int]:
    each, rest = divmod(output.nbytes, total)
    if rest:
        raise FrameError(f"{output.name}: {output.nbytes} bytes do not divide into {total} rows")
    return [each * one for one in rows]


def _headers(
    results: Results, rows: Sequence[int], columns: Sequence[Sequence[memoryview]]
) -> list[tuple[TensorHeader, ...]]:
    alike = not any(output.sizes for output in results.outputs)
    by_rows: dict[int, tuple[TensorHeader, ...]] = {}
    headers = []
    for i, row_count in enumerate(rows):
        tensors = by_rows.get(row_count)
        if tensors is None:
            tensors = tuple(
                [
                    TensorHeader(output.name, output.datatype, (row_count, *output.shape[1:]), len(column[i]))
                    for output, column in zip(results.outputs, columns, strict=True)
                ]
            )
            if alike:
                by_rows[row_count] = tensors
        headers.append(tensors)
    return headers
