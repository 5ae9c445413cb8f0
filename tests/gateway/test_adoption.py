"""Routes move to a new plan make-before-break, under a clock of the test's own."""

from __future__ import annotations

import math

from workers.gateway.adoption import Adoption

from .conftest import VARIANTS, plan

ENDPOINTS = {name: f"unix:/{name}" for name in ("d0", "d1", "d2")}
BIG, SMALL = (VARIANTS["numbers"][name][0] for name in ("big", "small"))


def offered(adoption: Adoption, version: int, now: float, **placed) -> None:
    adoption.set_target(plan(version, placed, ENDPOINTS), now)
    adoption.step(now)


def reported(adoption: Adoption, device: str, now: float, received_plan: int = 0, **ids) -> None:
    adoption.warm(device, {name: frozenset(warm) for name, warm in ids.items()}, received_plan)
    adoption.step(now)


def serving(version: int = 1) -> Adoption:
    adoption = Adoption(5.0)
    offered(adoption, version, 0.0, d0=[("numbers", "big")])
    reported(adoption, "d0", 0.0, numbers=[BIG])
    return adoption


def test_a_first_plan_serves_as_soon_as_anything_is_warm():
    adoption = Adoption(5.0)
    offered(adoption, 1, 0.0, d0=[("numbers", "big")], d1=[("numbers", "big")])
    assert adoption.routes == {}
    assert adoption.cold == ["numbers"]
    reported(adoption, "d1", 1.0, numbers=[BIG])
    assert adoption.routes == {"numbers": (("d1", 1.0),)}
    assert adoption.cold == []
    reported(adoption, "d0", 2.0, numbers=[BIG])
    assert adoption.routes == {"numbers": (("d0", 0.5), ("d1", 0.5))}
    assert adoption.adopted == 1


def test_old_routes_stay_until_the_new_ones_are_warm():
    adoption = serving()
    offered(adoption, 2, 1.0, d1=[("numbers", "small")], d2=[("numbers", "small")])
    assert adoption.routes == {"numbers": (("d0", 1.0),)}
    reported(adoption, "d1", 2.0, numbers=[SMALL])
    assert adoption.routes == {"numbers": (("d0", 1.0), ("d1", 0.0))}
    assert adoption.adopted is None
    reported(adoption, "d2", 3.0, numbers=[SMALL])
    assert adoption.routes == {"numbers": (("d1", 0.5), ("d2", 0.5), ("d0", 0.0))}
    assert adoption.adopted == 2


def test_a_device_with_another_variant_than_planned_is_not_yet_warm():
    adoption = serving()
    offered(adoption, 2, 1.0, d0=[("numbers", "small")])
    assert adoption.adopted is None
    reported(adoption, "d0", 2.0, numbers=[BIG, SMALL])
    assert adoption.adopted == 2


def test_after_the_limit_the_new_routes_begin_with_what_is_warm():
    adoption = serving()
    offered(adoption, 2, 1.0, d1=[("numbers", "small")], d2=[("numbers", "small")])
    reported(adoption, "d1", 2.0, numbers=[SMALL])
    assert adoption.due() == 6.0
    adoption.step(5.9)
    assert adoption.adopted is None
    adoption.step(6.0)
    assert adoption.routes == {"numbers": (("d1", 1.0), ("d0", 0.0))}
    assert adoption.adopted == 2
    assert adoption.due() == math.inf


def test_with_nothing_new_warm_the_old_routes_stay_past_the_limit():
    adoption = serving()
    offered(adoption, 2, 1.0, d1=[("numbers", "small")])
    adoption.step(100.0)
    assert adoption.routes == {"numbers": (("d0", 1.0),)}
    assert adoption.adopted is None


def test_old_routes_that_no_longer_work_are_not_waited_for():
    adoption = serving()
    offered(adoption, 2, 1.0, d1=[("numbers", "small")], d2=[("numbers", "small")])
    reported(adoption, "d1", 2.0, numbers=[SMALL])
    adoption.lost("d0")
    adoption.step(2.1)
    assert adoption.routes == {"numbers": (("d1", 1.0),)}


def test_a_quick_succession_of_plans_does_not_hold_the_change_back():
    adoption = serving()
    for now in range(1, 7):
        offered(adoption, 1 + now, float(now), d1=[("numbers", "small")], d2=[("numbers", "small")])
        reported(adoption, "d1", float(now), numbers=[SMALL])
    assert adoption.routes["numbers"][0] == ("d1", 1.0)
    assert adoption.adopted == 7


def test_a_variant_that_left_is_not_moved_back_to_until_its_device_has_the_plan():
    adoption = serving()
    reported(adoption, "d0", 0.5, received_plan=1, numbers=[BIG])
    offered(adoption, 2, 1.0, d1=[("numbers", "small")])
    reported(adoption, "d1", 2.0, received_plan=2, numbers=[SMALL])
    assert adoption.adopted == 2
    # The first device still has it warm, and may be about to unload it.
    offered(adoption, 3, 3.0, d0=[("numbers", "big")])
    assert adoption.adopted is None and adoption.routes == {"numbers": (("d1", 1.0), ("d0", 0.0))}
    reported(adoption, "d0", 3.1, received_plan=2, numbers=[BIG])
    assert adoption.adopted is None
    reported(adoption, "d0", 3.2, received_plan=3, numbers=[BIG])
    assert adoption.adopted == 3 and adoption.routes == {"numbers": (("d0", 1.0), ("d1", 0.0))}


def test_a_variant_of_all_plans_stays_whichever_of_them_its_device_has():
    adoption = serving()
    reported(adoption, "d0", 0.5, received_plan=1, numbers=[BIG])
    for version in (2, 3):
        offered(adoption, version, float(version), d0=[("numbers", "big")], d1=[("words", "only")])
        assert adoption.routes == {"numbers": (("d0", 1.0),)} and not adoption.moving("numbers")
    # One of these plans has it elsewhere.
    offered(adoption, 4, 4.0, d1=[("numbers", "small")])
    offered(adoption, 5, 5.0, d0=[("numbers", "big")])
    assert adoption.moving("numbers")
    reported(adoption, "d0", 6.0, received_plan=5, numbers=[BIG])
    assert not adoption.moving("numbers")


def test_a_device_with_a_plan_that_the_gateway_lacks_is_not_sure_to_keep_anything():
    adoption = serving()
    reported(adoption, "d0", 0.5, received_plan=1, numbers=[BIG])
    offered(adoption, 2, 1.0, d0=[("numbers", "big")], d1=[("words", "only")])
    # The third plan has it elsewhere, and reaches the device alone.
    reported(adoption, "d0", 1.5, received_plan=3, numbers=[BIG])
    offered(adoption, 4, 2.0, d0=[("numbers", "big")])
    assert adoption.moving("numbers")
    reported(adoption, "d0", 2.5, received_plan=4, numbers=[BIG])
    assert adoption.adopted == 4


def test_a_device_that_receives_no_plan_is_waited_for_until_the_limit():
    adoption = serving()
    reported(adoption, "d1", 0.5, received_plan=1, numbers=[SMALL])
    offered(adoption, 2, 1.0, d1=[("numbers", "small")])
    adoption.step(5.9)
    assert adoption.moving("numbers")
    adoption.step(6.0)
    assert adoption.adopted == 2


def test_devices_that_are_not_in_use_are_waited_for_until_the_limit():
    adoption = serving()
    offered(adoption, 2, 1.0, d1=[("numbers", "small")], d2=[("numbers", "small")])
    both = frozenset(["d1", "d2"])
    for device in sorted(both):
        adoption.warm(device, {"numbers": frozenset([SMALL])})
    adoption.step(2.0, both)
    assert adoption.moving("numbers") and adoption.not_in_use == both
    adoption.step(5.9, both)
    assert adoption.routes["numbers"][0] == ("d0", 1.0)
    adoption.step(6.0, both)
    assert adoption.adopted == 2


def test_one_new_device_in_use_is_enough():
    adoption = serving()
    offered(adoption, 2, 1.0, d1=[("numbers", "small")], d2=[("numbers", "small")])
    for device in ("d1", "d2"):
        adoption.warm(device, {"numbers": frozenset([SMALL])})
    adoption.step(2.0, frozenset(["d1"]))
    assert adoption.adopted == 2


def test_old_devices_that_are_not_in_use_hasten_nothing():
    adoption = serving()
    offered(adoption, 2, 1.0, d1=[("numbers", "small")], d2=[("numbers", "small")])
    adoption.warm("d1", {"numbers": frozenset([SMALL])})
    adoption.step(2.0, frozenset(["d0"]))
    assert adoption.moving("numbers")


def test_an_application_that_stays_on_a_device_that_is_not_in_use_holds_no_plan_up():
    adoption = serving()
    adoption.set_target(plan(2, {"d0": [("numbers", "big")]}, ENDPOINTS), 1.0)
    adoption.step(1.0, frozenset(["d0"]))
    assert adoption.adopted == 2


def test_an_application_left_out_is_served_until_the_others_have_moved():
    adoption = serving()
    offered(adoption, 2, 1.0, d0=[("words", "only")])
    assert adoption.routes == {"numbers": (("d0", 1.0),)}
    reported(adoption, "d0", 2.0, numbers=[BIG], words=[3])
    assert adoption.routes == {"words": (("d0", 1.0),)}
    assert adoption.adopted == 2


def test_a_device_that_is_gone_is_left_out_and_taken_back():
    adoption = Adoption(5.0)
    offered(adoption, 1, 0.0, d0=[("numbers", "big")], d1=[("numbers", "big")])
    reported(adoption, "d0", 0.0, numbers=[BIG])
    reported(adoption, "d1", 0.0, numbers=[BIG])
    adoption.lost("d0")
    adoption.step(1.0)
    assert adoption.routes == {"numbers": (("d1", 1.0),)}
    adoption.lost("d1")
    adoption.step(2.0)
    assert adoption.cold == ["numbers"]
    reported(adoption, "d0", 3.0, numbers=[BIG])
    assert adoption.routes == {"numbers": (("d0", 1.0),)}


def test_devices_are_needed_as_long_as_a_route_leads_there():
    adoption = serving()
    offered(adoption, 2, 1.0, d1=[("numbers", "small")])
    assert adoption.devices() == {"d0", "d1"}
    reported(adoption, "d1", 2.0, numbers=[SMALL])
    assert adoption.devices() == {"d1"}
