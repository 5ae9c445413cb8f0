"""Responses over HTTP whose outputs are all binary data: all of a batch's are alike but for a number and the tensors,
and what is alike is rendered once. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from workers.protocol.frames import Buffer, TensorHeader

from .query import Terms

#: characters of the number: with blanks in front, which JSON allows, most responses are of one length
WIDTH = 9

_encode = msgspec.json.Encoder().encode


class Template:
    """A response as bytes from its content type on, with places left for the request's id, one parameter that is a
    number of up to three decimals, and the tensors; as :func:`~.http.render` would make it.

    Args:
        parameters: of the response, in order. ``number``: the name of the one that is not the same each time.
        headers: the outputs that there are; those that the terms name must be among them, all wanted as binary data.
    """

    __slots__ = ("_after", "_before", "_head", "_length", "_nbytes", "_order")

    def __init__(
        self,
        terms: Terms,
        model: str,
        version: str,
        parameters: Mapping[str, Any],
        number: str,
        headers: Sequence[TensorHeader],
    ):
        names = [header.name for header in headers]
        wanted = [headers[names.index(name)] for name, _ in terms.outputs]
        order = tuple(names.index(name) for name, _ in terms.outputs)
        #: None: the parts as they come
        self._order = None if order == tuple(range(len(headers))) else order
        self._nbytes = sum(header.nbytes for header in wanted)
        place = list(parameters).index(number)
        first, rest = dict(list(parameters.items())[:place]), dict(list(parameters.items())[place + 1 :])
        text = _encode({"model_name": model, "model_version": version, "parameters": first})[:-2]
        self._before = text + (b"," if first else b"") + _encode(number) + b":"
        outputs = [
            {
                "name": header.name,
                "datatype": header.datatype,
                "shape": header.shape,
                "parameters": {"binary_data_size": header.nbytes},
            }
            for header in wanted
        ]
        self._after = (b"," + _encode(rest)[1:] if rest else b"}") + b',"outputs":' + _encode(outputs) + b"}"
        self._length = len(self._before) + WIDTH + len(self._after)
        self._head = self._headers(self._length) + self._before

    def _headers(self, length: int) -> bytes:
        return (
            b"content-type: application/octet-stream\r\ninference-header-content-length: %d\r\n"
            b"content-length: %d\r\n\r\n" % (length, length + self._nbytes)
        )

    def fill(self, id: str, number: float, parts: Sequence[Buffer]) -> bytes:
        """The whole of it, for :meth:`~workers.net.http1.Exchange.succeed`."""
        value = b"%*.3f" % (WIDTH, number)
        if self._order is not None:
            parts = [parts[i] for i in self._order]
        if not id and len(value) == WIDTH:
            return b"".join((self._head, value, self._after, *parts))
        before = b'{"id":' + _encode(id) + b"," + self._before[1:] if id else self._before
        length = len(before) + len(value) + len(self._after)
        return b"".join((self._headers(length), before, value, self._after, *parts))


def fits(terms: Terms, headers: Sequence[TensorHeader]) -> bool:
    """Whether such a template can be made."""
    names = [header.name for header in headers]
    return all(binary and name in names for name, binary in terms.outputs)
