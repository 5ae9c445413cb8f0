"""Packing and unpacking are each other's inverse, and strict."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.protocol.datatypes import NUMPY
from workers.v2 import tensors
from workers.v2.tensors import TensorError

ELEMENTS = {
    "BOOL": st.booleans(),
    "FP16": st.floats(width=16, allow_nan=False, allow_infinity=False),
    "FP32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "FP64": st.floats(allow_nan=False, allow_infinity=False),
    "BYTES": st.text(),
} | {
    name: st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for name, dtype in NUMPY.items()
    if dtype.kind in "iu"
}


def nested(flat: list, shape: tuple[int, ...]) -> list:
    if len(shape) == 1:
        return flat
    size = math.prod(shape[1:])
    return [nested(flat[i * size : (i + 1) * size], shape[1:]) for i in range(shape[0])]


@st.composite
def tensor(draw):
    datatype = draw(st.sampled_from(sorted(ELEMENTS)))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    count = math.prod(shape)
    return datatype, shape, draw(st.lists(ELEMENTS[datatype], min_size=count, max_size=count))


@given(tensor())
def test_what_is_packed_unpacks_to_itself(case):
    datatype, shape, flat = case
    packed = tensors.pack(datatype, shape, flat)
    tensors.check_packed(datatype, shape, packed)
    assert tensors.unpack(datatype, shape, packed) == flat
    assert tensors.pack(datatype, shape, nested(flat, shape)) == packed


@given(tensor())
def test_packed_bytes_are_those_of_numpy(case):
    datatype, shape, flat = case
    if datatype != "BYTES":
        assert tensors.pack(datatype, shape, flat) == np.array(flat, NUMPY[datatype]).tobytes()


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "words"),
    [
        ("UINT8", [1], [256], "from 0 to 255"),
        ("UINT8", [1], [-1], "from 0 to 255"),
        ("INT64", [1], [2**63], "from -9223372036854775808 to 9223372036854775807"),
        ("UINT64", [1], [2**80], "from 0 to 18446744073709551615"),
        ("INT32", [1], [1.5], "must be whole numbers; it has fractions"),
        ("INT32", [1], ["1"], "must be whole numbers; it has strings"),
        ("INT32", [1], [True], "must be whole numbers; it has booleans"),
        ("FP32", [1], [1e39], "from -3.40"),
        ("FP16", [1], [1e5], "from -65504"),
        ("FP64", [1], [10**400], "from -1.79"),
        ("FP32", [1], [None], "must be numbers; it has null"),
        ("FP32", [2], [{}, 1], "must be numbers; it has objects"),
        ("BOOL", [1], [1], "must be true or false; it has numbers"),
        ("BYTES", [1], [b"x"], "must be strings"),
        ("BF16", [1], [1.0], "BF16 has no JSON form"),
        ("FP32", [2, 2], [1, 2, 3], "has 3 elements; shape [2, 2] takes 4"),
        ("FP32", [2, 2], [[1, 2], [3]], "each list of level 1 takes 2"),
        ("FP32", [2, 2], [[1, 2], 3], "each list of level 1 takes 2"),
        ("FP32", [2, 2], [[1, 2]], "has 1 rows; shape [2, 2] takes 2"),
        ("FP32", [2, 2], [1, [2], 3, 4], "mixes lists and values"),
        ("FP32", [2], [[1], [2]], "nested deeper than shape [2]"),
        ("FP32", [1], 5, "must be a list"),
        ("FP32", [2**70, 2**70], [1.0], "takes"),
    ],
)
def test_refuses_what_does_not_fit(datatype, shape, data, words):
    with pytest.raises(TensorError) as caught:
        tensors.pack(datatype, shape, data)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("datatype", "data", "words"),
    [
        ("FP32", np.array([np.nan], "<f4").tobytes(), "NaN or infinity"),
        ("BYTES", b"\x01\x00\x00\x00\xff", "not UTF-8"),
        ("BF16", b"\x00\x00", "BF16 has no JSON form"),
        ("BYTES", b"\x02\x00\x00\x00a", "2 bytes long, 1 are left"),
        ("BYTES", b"\x02\x00", "takes at least 4"),
        ("BYTES", b"", "takes at least 4"),
        ("BOOL", b"\x02", "bytes 0 or 1"),
    ],
)
def test_refuses_to_unpack_what_json_cannot_say(datatype, data, words):
    with pytest.raises(TensorError) as caught:
        tensors.unpack(datatype, [1], data)
    assert words in str(caught.value)


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_null_stands_for_what_is_no_number_where_it_is_wanted(datatype):
    packed = np.array([1.5, np.nan, -np.inf, -0.0, np.inf], NUMPY[datatype]).tobytes()
    found = tensors.unpack(datatype, [5], packed, null=True)
    assert found == [1.5, None, None, -0.0, None]
    assert math.copysign(1, found[3]) == -1
