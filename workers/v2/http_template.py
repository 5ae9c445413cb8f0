"""Templates of responses over HTTP with binary outputs only. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from workers.protocol.frames import Buffer, TensorHeader

from .query import Terms

#: characters of each number: with blanks in front, which JSON allows, most responses have the same length
WIDTH = 9

_encode = msgspec.json.Encoder().encode


class HttpTemplate:
    """A response with gaps, from its content type on.

    It is as :func:`.http.render` would render it. The gaps are for the request's id, parameters that are numbers of up
    to three decimals, and the tensors.

    Args:
        parameters: of the response; ``numbers``: names of those that differ, the first one by query, others by batch.
        headers: the model's outputs; see :meth:`fits`.
    """

    __slots__ = ("_after", "_before", "_first", "_head", "_length", "_nbytes", "_order", "_others", "_usual")

    @staticmethod
    def fits(terms: Terms, headers: Sequence[TensorHeader]) -> bool:
        """Whether the model gave all wanted outputs, and all are wanted as binary data."""
        return {(header.name, True) for header in headers}.issuperset(terms.outputs)

    def __init__(
        self,
        terms: Terms,
        model: str,
        version: str,
        parameters: Mapping[str, Any],
        numbers: Sequence[str],
        headers: Sequence[TensorHeader],
    ):
        names = [header.name for header in headers]
        wanted = [headers[names.index(name)] for name, _ in terms.outputs]
        order = tuple(names.index(name) for name, _ in terms.outputs)
        #: None: in the model's order
        self._order = None if order == tuple(range(len(headers))) else order
        self._nbytes = sum(header.nbytes for header in wanted)
        fixed = {name: value for name, value in parameters.items() if name not in numbers}
        text = _encode({"model_name": model, "model_version": version, "parameters": fixed})[:-2]
        self._before = text + (b"," if fixed else b"")
        first, *others = [_encode(name) + b":%%%d.3f" % WIDTH for name in numbers]
        self._first = first
        self._others = b"".join([b"," + one for one in others])
        outputs = [
            {
                "name": header.name,
                "datatype": header.datatype,
                "shape": header.shape,
                "parameters": {"binary_data_size": header.nbytes},
            }
            for header in wanted
        ]
        self._after = b'},"outputs":' + _encode(outputs) + b"}"
        self._usual = len(first % 0.0) + len(self.fill_batch((0.0,) * len(others)))
        self._length = len(self._before) + self._usual + len(self._after)
        self._head = self._headers(self._length) + self._before

    def _headers(self, length: int) -> bytes:
        return (
            b"content-type: application/octet-stream\r\ninference-header-content-length: %d\r\n"
            b"content-length: %d\r\n\r\n" % (length, length + self._nbytes)
        )

    def fill_batch(self, numbers: tuple[float, ...]) -> bytes:
        """The numbers that all of a batch share, for :meth:`fill`."""
        return self._others % numbers

    def fill(self, id: str, number: float, batch: bytes, parts: Sequence[Buffer]) -> bytes:
        """Return the response with its gaps filled.

        Args:
            batch: from :meth:`fill_batch`.
            parts: packed data of all the model's outputs.
        """
        values = self._first % number + batch
        if self._order is not None:
            parts = [parts[i] for i in self._order]
        if not id and len(values) == self._usual:
            return b"".join((self._head, values, self._after, *parts))
        before = b'{"id":' + _encode(id) + b"," + self._before[1:] if id else self._before
        length = len(before) + len(values) + len(self._after)
        return b"".join((self._headers(length), before, values, self._after, *parts))
