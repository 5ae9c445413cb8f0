"""Imagined changes: what they do to a problem, and which are impossible."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import InvalidInput
from scheduler.allocation.problem import DeviceResources
from scheduler.allocation.verification import faults
from scheduler.promises.changes import Changes, check, imagined, node_of

from .worlds import KIND, OTHER, problem


def test_no_changes_leave_the_problem_as_it_is():
    assert imagined(problem(), Changes()) == problem()
    assert Changes().empty and not Changes().applicable


def test_each_change_is_made():
    changes = Changes(
        slo_ms={"digits": 120.0},
        variants={"digits/quick": "excluded", "digits/good": "pinned"},
        add_devices={OTHER: 2},
        remove_devices=("left/cpu1",),
        cordon=("right",),
    )
    check(problem(), changes)
    found = imagined(problem(), changes, {"digits": 44.0}, {"digits": 40.0})
    assert {a.id: a.expected for a in found.applications} == {"digits": 40.0, "words": None}
    assert {a.id: (a.slo_s, a.demand) for a in found.applications} == {"digits": (0.12, 44.0), "words": (0.3, 5.0)}
    assert {v.name: (v.pinned, v.excluded) for v in found.variants} == {
        "quick": (False, True),
        "good": (True, False),
        "only": (False, False),
    }
    assert [(d.id, d.type) for d in found.devices] == [
        ("imagined/cpu-b-1", OTHER),
        ("imagined/cpu-b-2", OTHER),
        ("left/cpu0", KIND),
    ]
    assert faults(found) == []


@given(st.integers(0, 5), st.integers(0, 5), st.sets(st.sampled_from([d.id for d in problem().devices])), st.booleans())
def test_devices_add_up(same, other, removed, cordon):
    changes = Changes(
        add_devices={KIND: same, OTHER: other}, remove_devices=tuple(removed), cordon=("right",) if cordon else ()
    )
    found = imagined(problem(), changes)
    gone = {d.id for d in problem().devices if d.id in removed or (cordon and node_of(d.id) == "right")}
    assert len(found.devices) == 4 - len(gone) + same + other
    assert not gone & {d.id for d in found.devices}
    assert len({d.id for d in found.devices}) == len(found.devices)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (Changes(demand_factor=-1), "demand_factor"),
        (Changes(demand_factor=float("nan")), "demand_factor"),
        (Changes(demand={"digits": 1e7}), "demand.digits"),
        (Changes(demand={"sounds": 1.0}), "demand.sounds"),
        (Changes(slo_ms={"digits": 0.5}), "slo_ms.digits"),
        (Changes(variants={"digits/best": "pinned"}), "variants.digits/best"),
        (Changes(variants={"digits/good": "gone"}), "variants.digits/good"),
        (Changes(add_devices={"tpu": 1}), "add_devices.tpu"),
        (Changes(add_devices={KIND: 1001}), f"add_devices.{KIND}"),
        (Changes(remove_devices=("left/cpu7",)), "remove_devices.left/cpu7"),
        (Changes(cordon=("middle",)), "cordon.middle"),
        (Changes(cordon=("left", "right")), "cordon"),
    ],
)
def test_the_impossible_is_named(changes, field):
    with pytest.raises(InvalidInput) as error:
        check(problem(), changes)
    assert field in [fault.field for fault in error.value.faults]


def test_the_error_of_an_unknown_name_lists_known_ones():
    many = replace(problem(), devices=tuple(DeviceResources(f"node{number:02}/cpu0", KIND) for number in range(14)))
    with pytest.raises(InvalidInput) as error:
        check(many, Changes(demand={"sounds": 1.0}, remove_devices=("node14/cpu0", "x"), add_devices={"tpu": 1}))
    details = {fault.field: fault.detail.partition("which has ")[2] for fault in error.value.faults}
    devices = f"{', '.join(f'node{number:02}/cpu0' for number in range(10))} and 4 more"
    assert details == {
        "demand.sounds": "digits and words",
        "add_devices.tpu": f"{KIND} and {OTHER}",
        "remove_devices.node14/cpu0": devices,
        "remove_devices.x": devices,
    }


def test_demand_is_a_factor_or_a_rate():
    changes = Changes(demand_factor=3.0, demand={"digits": 10.0})
    assert changes.factor("digits", 40.0) == 0.25
    assert changes.factor("words", 40.0) == 3.0
