"""Size classes: where a query belongs, which are measured, and which are alike."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.executor.harness import application
from tests.wild import models
from workers.executor.loaded import Loaded
from workers.executor.size_classes import SizeClasses
from workers.protocol import shapes
from workers.protocol.specs import ProfilePoint, Resident, VariantSpec

SIZES = st.lists(st.integers(1, 500), unique=True, max_size=8).map(sorted).map(tuple)


def texts(*sizes: int, padding=None, signature=models.TOKENS):
    spec = application("texts", signature=signature)
    return msgspec.structs.replace(spec, sizes=sizes, padding=padding or {})


def tokens(ids: int, mask: int, rows: int = 1) -> list[tuple[int, ...]]:
    return [(rows, ids), (rows, mask)]


def points(seconds: float, size: int = 0, batches=(1, 2, 4)) -> tuple[ProfilePoint, ...]:
    return tuple(ProfilePoint(b, seconds * b, seconds * b, seconds * b, 20, size) for b in batches)


# --- whose class ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 16), (1, 16), (16, 16), (17, 128), (128, 128), (129, 0), (512, 0)]
)
def test_a_query_belongs_to_the_smallest_class_that_holds_it(length, expected):
    assert shapes.size_class(texts(16, 128, 512), tokens(length, 1)) == expected


def test_every_open_dimension_of_every_input_counts_and_no_other():
    spec = texts(16, 128, 512)
    assert shapes.size_class(spec, tokens(3, 100)) == 128
    assert shapes.size_class(spec, tokens(3, 3, rows=400)) == 16
    images = texts(64, 224, signature=models.IMAGES)
    assert shapes.size_class(images, [(9, 3, 64, 65)]) == 0
    assert shapes.size_class(images, [(9, 3, 64, 1)]) == 64


@pytest.mark.parametrize("sizes", [(), (512,)])
def test_with_fewer_than_two_sizes_there_is_one_class(sizes):
    assert shapes.size_class(texts(*sizes), tokens(3, 3)) == 0
    assert shapes.classes(texts(*sizes)) == (0,)


def test_padded_queries_of_different_classes_do_not_share_a_run():
    spec = texts(16, 128, padding={"ids": 0.0, "mask": 0.0})
    assert shapes.key(spec, tokens(3, 3)) == shapes.key(spec, tokens(16, 9))
    assert shapes.key(spec, tokens(3, 3)) != shapes.key(spec, tokens(17, 17))
    undeclared = texts(padding={"ids": 0.0, "mask": 0.0})
    assert shapes.key(undeclared, tokens(3, 3)) == shapes.key(undeclared, tokens(500, 500))


@given(SIZES, st.sets(st.integers(1, 500), max_size=4), st.integers(1, 500))
def test_classes_that_no_profile_knows_apart_are_left_out_and_nothing_else_changes(sizes, profiled, length):
    """A profile says the same of a query, whether by all declared classes or by the merged ones."""
    profiled = {size for size in profiled if sizes and size < sizes[-1]}
    kept = shapes.distinct_sizes(sizes, profiled)
    assert set(kept) <= set(sizes) and kept[-1:] == sizes[-1:]
    if not sizes or length > sizes[-1]:
        return
    known = (*points(1.0), *(p for size in sorted(profiled) for p in points(size / 1000, size)))
    at = [shapes.size_class(texts(*some), tokens(length, 1)) for some in (sizes, kept)]
    assert shapes.of_class(known, at[0]) == shapes.of_class(known, at[1])


# --- what is measured -----------------------------------------------------------------------------------------------


def measured(sizes, seconds) -> tuple[SizeClasses, list[int]]:
    """All that is asked for, in order. ``seconds``: of one row by size."""
    classes, order = SizeClasses(sizes), []
    while (size := classes.next()) is not None:
        order.append(size)
        classes.add(size, points(seconds(size or max(sizes, default=1))))
    return classes, order


@pytest.mark.parametrize(
    ("sizes", "seconds", "asked_for", "kept"),
    [
        pytest.param((), lambda size: 0.01, [0], [0], id="an application without sizes"),
        pytest.param(range(1, 9), lambda size: 0.01, [0, 1], [0], id="time that does not depend on size"),
        pytest.param((16, 64, 256, 512), lambda size: size / 1000, [0, 16, 64, 256], [0, 16, 64, 256], id="that grows"),
        pytest.param(
            range(1, 17), lambda size: 0.01 if size <= 8 else 0.1, [0, 1, 8, 12, 10, 9], [0, 8], id="beyond a size"
        ),
    ],
)
def test_classes_between_two_that_differ_are_measured_and_those_alike_are_one(sizes, seconds, asked_for, kept):
    classes, order = measured(tuple(sizes), seconds)
    assert order == asked_for
    assert [(p.size, p.batch) for p in classes.points()] == [(size, batch) for size in kept for batch in (1, 2, 4)]


def test_many_small_steps_are_not_taken_for_none():
    sizes = tuple(range(100, 200, 10))
    classes, _ = measured(sizes, lambda size: size / 1000)
    for size in sizes:
        (first, *_) = shapes.of_class(classes.points(), size if size < 190 else 0)
        assert size / 1000 <= first.p50_s * 1.1 and first.p50_s <= 1.2 * size / 1000


def test_a_class_that_is_slower_than_a_larger_one_keeps_its_own_time():
    classes, _ = measured((100, 128), lambda size: 0.02 if size == 100 else 0.01)
    assert shapes.of_class(classes.points(), 100)[0].p50_s == pytest.approx(0.02)


def test_what_nobody_had_time_to_measure_counts_as_the_next_larger_class():
    classes = SizeClasses((16, 64, 256))
    classes.add(0, points(0.1))
    classes.add(16, points(0.01))
    assert [shapes.of_class(classes.points(), size)[0].p50_s for size in (16, 64, 0)] == [0.01, 0.1, 0.1]


# --- what is expected -----------------------------------------------------------------------------------------------


def loaded(*smaller: ProfilePoint, sizes: tuple[int, ...] = (128, 512), whole_s: float = 0.1) -> Loaded:
    spec = VariantSpec(1, "v1", "texts", "0" * 64, 1, 90.0, 90.0)
    return Loaded(Resident(spec, 4, 1.0, 0.5, points(whole_s), smaller=smaller), texts(*sizes), None, 0.0)


def both() -> Loaded:
    return loaded(*points(0.01, 128))


def drift(one: Loaded, run_s: float, extent: int) -> float | None:
    """The drift reported after half a minute of such single-row batches."""
    for tick in range(300):
        one.at(extent).observe(tick * 0.1, 1, run_s, extent)
    return one.drifted(30.0)


def test_a_batch_is_expected_to_take_what_its_own_class_takes():
    one = both()
    assert [one.at(extent).typical.seconds(2) for extent in (1, 128, 129, 512, 0)] == [0.02, 0.02, 0.2, 0.2, 0.2]


@pytest.mark.parametrize(
    ("extent", "run_s", "drifted"),
    [
        *((extent, 0.01 * extent / 128, None) for extent in (1, 40, 128)),
        *((extent, 0.1 * extent / 512, None) for extent in (300, 512)),
        *((extent, 0.02, 2.0) for extent in (100, 128)),
        (512, 0.2, 2.0),
        # Faster ones show only where queries are as large as what was measured.
        (128, 0.005, 0.5),
        (512, 0.05, 0.5),
        (511, 0.05, None),
    ],
)
def test_a_device_has_drifted_if_queries_do_not_take_what_their_size_lets_them(extent, run_s, drifted):
    assert drift(both(), run_s, extent) == (drifted and pytest.approx(drifted))


def test_one_class_that_strays_is_not_lost_among_the_others():
    one = both()
    for tick in range(300):
        one.at(512).observe(tick * 0.1, 1, 0.2, 512)
        for _ in range(9):
            one.at(128).observe(tick * 0.1, 1, 0.01, 128)
    assert one.drifted(30.0) == pytest.approx(2.0)
    assert one.ratio == pytest.approx(1.1, abs=0.01)


def test_sizes_that_nobody_declared_cannot_drift():
    one = loaded(sizes=(), whole_s=0.01)
    assert drift(one, 0.05, 0) is None


def test_another_profile_of_a_class_starts_its_estimates_afresh():
    one = both()
    drift(one, 0.02, 128)
    before = one.at(128)
    again = Resident(one.variant, 4, 1.0, 0.5, points(0.1), smaller=points(0.01, 128))
    one.update(again, one.application)
    assert one.at(128) is before
    one.update(msgspec.structs.replace(again, smaller=points(0.02, 128)), one.application)
    assert one.at(128).ratio == 0.0 and one.at(128).typical.seconds(1) == 0.02
