"""How ``NEREUS_CPU_DEVICES=auto`` divides boxes of all shapes."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.node.division import FEWEST, KEEP_BEYOND, MOST_IDLE, SIZES, divide, summary
from workers.topology import Topology, read


def box(*nodes: int, threads: int = 1, quota: float | None = None, models: tuple[str, ...] = ("Xeon",)) -> Topology:
    """A box with that many cores in each NUMA node, second threads behind them."""
    cores = sum(nodes)
    node_of, model_of, core_of = {}, {}, {}
    first = 0
    for node, count in enumerate(nodes):
        for core in range(first, first + count):
            for thread in range(threads):
                processor = core + thread * cores
                node_of[processor], core_of[processor] = node, core
                model_of[processor] = models[core * len(models) // cores]
        first += count
    return Topology(tuple(sorted(core_of)), core_of, node_of, model_of, quota)


@pytest.mark.parametrize(
    ("topology", "keep", "line"),
    [
        (box(1), True, "1 core: 1 device of 1 core"),
        (box(2), True, "2 cores: 2 devices of 1 core"),
        (box(4), True, "4 cores: 4 devices of 1 core"),
        (box(5), True, "5 cores: 4 devices of 1 core, 1 core for control plane"),
        (box(5), False, "5 cores: 5 devices of 1 core"),
        (box(8), True, "8 cores: 7 devices of 1 core, 1 core for control plane"),
        (box(8), False, "8 cores: 4 devices of 2 cores"),
        (box(16), True, "16 cores: 7 devices of 2 cores, 2 cores for control plane"),
        (box(16), False, "16 cores: 4 devices of 4 cores"),
        (box(32), True, "32 cores: 7 devices of 4 cores, 4 cores for control plane"),
        (box(32, 32), True, "64 cores: 7 devices of 8 cores, 8 cores for control plane"),
        (box(18, 18), True, "36 cores: 4 devices of 8 cores, 4 cores for control plane"),
        (box(16, quota=4.5), True, "16 cores, 4 by the control group's quota: 4 devices of 1 core"),
        (box(16, quota=0.5), True, "16 cores, 1 by the control group's quota: 1 device of 1 core"),
        (box(8, threads=2), False, "8 cores: 4 devices of 2 cores"),
    ],
)
def test_boxes_are_divided_and_said(topology, keep, line):
    assert summary(divide(topology, keep), "control plane") == line


def test_what_is_left_without_anybody_to_use_it_is_left_over():
    assert summary(divide(box(17), False), "") == "17 cores: 4 devices of 4 cores, 1 core left over"


def test_devices_have_both_threads_of_their_cores_and_leave_the_first_core():
    found = divide(box(6, threads=2), keep=True)
    assert found.devices == ((1, 7), (2, 8), (3, 9), (4, 10), (5, 11))


def test_cores_of_two_models_are_not_combined():
    found = divide(box(8, models=("Cortex-A55", "Cortex-A76")), keep=False)
    assert found.devices == ((0, 1), (2, 3), (4, 5), (6, 7))
    odd = divide(box(6, models=("Cortex-A55", "Cortex-A76", "Cortex-A76")), keep=False)
    assert all(len({device // 2 == 0 for device in one}) == 1 for one in odd.devices)


TOPOLOGIES = st.builds(
    lambda nodes, threads, quota, two: box(
        *nodes, threads=threads, quota=quota, models=("P-core", "E-core") if two else ("Xeon",)
    ),
    st.lists(st.integers(1, 64), min_size=1, max_size=4),
    st.integers(1, 2),
    st.none() | st.floats(0.1, 80),
    st.booleans(),
)


@given(TOPOLOGIES, st.booleans(), st.data())
def test_any_box_is_divided_into_equal_devices_that_share_nothing(whole, keep, data):
    usable = data.draw(st.sets(st.sampled_from(whole.usable), min_size=1), label="affinity")
    topology = Topology(tuple(sorted(usable)), whole.core_of, whole.node_of, whole.model_of, whole.quota)
    found = divide(topology, keep)
    processors = [processor for device in found.devices for processor in device]
    assert found.devices and len(processors) == len(set(processors))
    assert set(processors) <= set(usable)
    for device in found.devices:
        cores = {topology.core_of[processor] for processor in device}
        assert len(cores) == found.size in SIZES
        assert len({topology.node_of[processor] for processor in device}) == 1
        assert len({topology.model_of[processor] for processor in device}) == 1
        # All of a core's usable threads, so that no two devices share its arithmetic units.
        assert {processor for processor in usable if topology.core_of[processor] in cores} == set(device)
    granted = found.present if topology.quota is None else min(found.present, max(1, int(topology.quota)))
    kept = int(keep and granted > KEEP_BEYOND)
    assert found.cores == granted and found.left >= kept
    assert found.size == 1 or len(found.devices) >= FEWEST
    assert found.left - kept <= (MOST_IDLE * granted if found.size > 1 else 0)
    assert divide(topology, keep) == found


def test_this_machine_is_divided():
    usable = os.sched_getaffinity(0)
    found = divide(read(), keep=False)
    assert found.devices and set().union(*found.devices) <= usable
    assert found.present <= len(usable) and summary(found, "")
