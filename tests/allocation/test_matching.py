"""Counts back onto devices: as few loads as enumeration finds."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.allocation.matching import keep_loaded
from scheduler.allocation.problem import DeviceResources

VARIANTS = "abc"


@given(
    st.lists(st.frozensets(st.sampled_from(VARIANTS)), min_size=1, max_size=5),
    st.lists(st.sampled_from(VARIANTS), max_size=5),
)
def test_as_few_variants_as_possible_move(loaded, copies):
    copies = copies[: len(loaded)]
    devices = [DeviceResources(f"d{i}", "cpu", loaded=has) for i, has in enumerate(loaded)]
    counts = {m: copies.count(m) for m in VARIANTS}
    hosts = keep_loaded(devices, counts)
    assert {m: list(hosts.values()).count(m) for m in VARIANTS} == counts
    kept = sum(m in device.loaded for device in devices if (m := hosts.get(device.id)) is not None)
    padded = copies + [None] * (len(devices) - len(copies))
    most = max(sum(m in d.loaded for m, d in zip(order, devices, strict=True)) for order in set(permutations(padded)))
    assert kept == most


def test_an_empty_device_takes_what_is_new_before_a_full_one():
    devices = [DeviceResources("full", "cpu", loaded=frozenset("b")), DeviceResources("empty", "cpu")]
    assert keep_loaded(devices, {"a": 1}) == {"empty": "a"}


def test_more_copies_than_devices_are_refused():
    with pytest.raises(ValueError, match="2 copies for 1 devices"):
        keep_loaded([DeviceResources("d", "cpu")], {"a": 2})
