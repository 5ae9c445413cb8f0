"""A batch's answers are divided among its queries, each with its own rows."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.protocol.frames import Results, ResultTensor
from workers.protocol.framing import FrameError
from workers.protocol.results import answers


def results(outputs: tuple[ResultTensor, ...], ids: tuple[int, ...], rows: tuple[int, ...] = ()) -> Results:
    return Results(1, ids, "v", 90.0, 95.0, 0.0, 0.1, sum(rows) or len(ids), 0.1, outputs, rows)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 3), st.data())
def test_each_query_gets_its_rows_of_every_output(rows, width, data):
    count = len(rows)
    texts = [data.draw(st.binary(max_size=9)) for _ in range(count)]
    fixed = [bytes([i]) * (rows[i] * width * 2) for i in range(count)]
    outputs = (
        ResultTensor("y", "INT16", (sum(rows), width), sum(map(len, fixed))),
        ResultTensor("t", "BYTES", (sum(rows),), sum(map(len, texts)), tuple(map(len, texts))),
    )
    row_counts = () if set(rows) == {1} else tuple(rows)
    found = answers(results(outputs, tuple(range(count)), row_counts), memoryview(b"".join(fixed + texts)))
    assert len(found) == count
    for i, (headers, parts) in enumerate(found):
        assert [bytes(part) for part in parts] == [fixed[i], texts[i]]
        assert [(h.name, h.shape, h.nbytes) for h in headers] == [
            ("y", (rows[i], width), len(fixed[i])),
            ("t", (rows[i],), len(texts[i])),
        ]


@pytest.mark.parametrize("width", [0, 2])
def test_answers_of_equal_shapes_share_their_headers_across_batches(width):
    output = ResultTensor("y", "FP32", (3, width), 12 * width)
    first, second = (answers(results((output,), (7, 8, 9)), memoryview(bytes(12 * width))) for _ in range(2))
    assert len({id(headers) for headers, _ in first + second}) == 1
    assert [len(parts[0]) for _, parts in first] == [4 * width] * 3


GOOD = ResultTensor("y", "FP32", (3, 2), 24)


@pytest.mark.parametrize(
    ("output", "rows", "size", "words"),
    [
        (GOOD, (), 23, "body has 23 bytes, its tensors 24"),
        (GOOD, (), 25, "body has 25 bytes, its tensors 24"),
        (msgspec.structs.replace(GOOD, shape=(2, 2)), (), 24, "y: has shape [2, 2], its queries 3 rows"),
        (msgspec.structs.replace(GOOD, shape=()), (), 24, "y: has shape [], its queries 3 rows"),
        (msgspec.structs.replace(GOOD, nbytes=25), (), 25, "y: 25 bytes do not divide into 3 rows"),
        (msgspec.structs.replace(GOOD, sizes=(8, 8)), (), 24, "y: sizes of 2 parts do not add up to 24 bytes"),
        (msgspec.structs.replace(GOOD, sizes=(8, 8, 9)), (), 24, "y: sizes of 3 parts do not add up to 24 bytes"),
        (GOOD, (1, 2), 24, "rows: has 2 numbers for 3 queries"),
        (GOOD, (1, 1, 2), 24, "y: has shape [3, 2], its queries 4 rows"),
        (msgspec.structs.replace(GOOD, shape=(0, 2), nbytes=0), (0, 0, 0), 0, "rows: must be at least 1 each, not 0"),
    ],
)
def test_what_does_not_add_up_is_said(output, rows, size, words):
    with pytest.raises(FrameError) as error:
        answers(results((output,), (1, 2, 3), rows), memoryview(bytes(size)))
    assert words in str(error.value)


@pytest.mark.parametrize("field", ["queue_s", "run_s", "occupied_s", "accuracy", "accuracy_normalized"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_no_statistics_could_hold_is_not_decoded(field, value):
    broken = msgspec.structs.replace(results((GOOD,), (1, 2, 3)), **{field: value})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(broken), type=Results)
