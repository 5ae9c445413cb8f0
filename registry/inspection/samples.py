"""Rows that a model is tried with: a validation set's first ones, or a sample's.

A sample comes with an upload. It is an ``.npz`` with an array for each input, as a validation set without labels, or a
query's body as V2 JSON.
"""

from __future__ import annotations

import os
from typing import Any

from registry.errors import invalid
from registry.signatures import spec
from workers.executor import validation
from workers.executor.codec import CodecError, decode
from workers.executor.independence import Arrays
from workers.protocol.specs import Signature
from workers.v2 import http
from workers.v2.query import V2Error

#: bytes of V2 JSON
MAX_JSON_BYTES = 64 * 2**20
MAX_ROWS = 1024


def read(path: str, signature: dict[str, Any], batch: bool) -> Arrays:
    """A few rows by input, in the signature's types. Raises InvalidInput."""
    expected = spec(signature, batch)
    try:
        with open(path, "rb") as file:
            if file.read(64).lstrip()[:1] != b"{":
                return validation.first_rows(path, expected)
        return _of_json(path, expected)
    except (validation.ValidationError, V2Error, CodecError) as error:
        raise invalid("sample", str(error)) from None


def _of_json(path: str, signature: Signature) -> Arrays:
    size = os.path.getsize(path)
    if size > MAX_JSON_BYTES:
        raise V2Error(f"has {size} bytes of JSON; the limit is {MAX_JSON_BYTES}: send an .npz")
    with open(path, "rb") as file:
        query = http.parse(file.read(), None, signature, MAX_ROWS)
    rows = {
        header.name: decode(header, memoryview(part))
        for header, part in zip(query.terms.shape.inputs, query.parts, strict=True)
    }
    return {name: array[: validation.FIRST_ROWS] for name, array in rows.items()}
