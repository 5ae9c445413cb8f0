"""Size classes in the gateway."""

from __future__ import annotations

import msgspec
import pytest

from tests.dispatch.driver import World, menu, option
from tests.executor.harness import application
from tests.wild import models
from workers.dispatch.binding import QueryClass, ServiceTerms
from workers.dispatch.feedback import learn
from workers.dispatch.late.binding import LateBinding
from workers.dispatch.latency import LatencyModel
from workers.dispatch.options import OptionSet, ServingOption
from workers.gateway.device_options import AROUND_S, DeviceOptions
from workers.protocol.frames import WarmVariant
from workers.protocol.specs import DevicePlan, PlanSpec, ProfilePoint, Resident, VariantSpec

WHOLE, SHORT = QueryClass("app"), QueryClass("app", 128)


def points(seconds: float, size: int = 0) -> tuple[ProfilePoint, ...]:
    return tuple(ProfilePoint(b, seconds * b, seconds * b, seconds * b, 20, size) for b in (1, 2, 4, 8))


def offered(
    sizes: tuple[int, ...], *smaller: ProfilePoint, seconds: float = 0.1, slo_s: float = 0.3
) -> dict[QueryClass, ServingOption]:
    """Options of one loaded variant, by application and class."""
    options = DeviceOptions()
    spec = msgspec.structs.replace(application("app", slo_s, models.TOKENS), sizes=sizes)
    options.configure({"app": spec}, 512)
    variant = VariantSpec(1, "v1", "app", "0" * 64, 1, 90.0, 100.0)
    resident = Resident(variant, 8, 1.0, 0.5, points(seconds), smaller=smaller)
    options.plan(PlanSpec(1, (DevicePlan("d0", "unix:/d0", (resident,)),)))
    made = options.of("d0", (WarmVariant(1, "v1", "app", 90.0, True),))
    return {name: menu.options[0] for name, menu in made.items()}


def test_every_class_is_offered_in_batches_that_end_within_the_slo():
    found = offered((128, 512), *points(0.01, 128))
    assert {name: one.max_rows for name, one in found.items()} == {WHOLE: 2, SHORT: 8}
    assert found[SHORT].seconds(8) == pytest.approx(0.08 + AROUND_S)


def test_what_is_too_slow_for_long_queries_is_offered_to_short_ones():
    assert list(offered((128, 512), *points(0.01, 128), seconds=0.4)) == [SHORT]


def test_a_class_that_the_profile_does_not_know_counts_as_the_next_larger():
    found = offered((16, 128, 512), *points(0.01, 128))
    assert found[QueryClass("app", 16)].key == found[SHORT].key != found[WHOLE].key


def test_without_classes_there_is_one_menu():
    assert list(offered(())) == list(offered((512,))) == [WHOLE]


# --- schedule --------------------------------------------------------------------------------------------------------


def scheduled_beside(other: str) -> str:
    """Return the variant for a short query on a device that has time for ``other`` only behind the quick one."""
    short = menu(option("good", 100, {1: 0.15}), option("quick", 90, {1: 0.01}))
    one = World({SHORT: 0.3, other: 0.3}, {"d0": {SHORT: short, other: menu(option("only", 100, {1: 0.2}))}})
    one.settle()
    one.busy("d0", 0.02)
    return one.submit(SHORT).reservation.option.variant


def test_accuracy_is_not_given_up_for_a_long_query_of_the_same_application_that_may_never_come():
    assert scheduled_beside("app") == "good"


def test_it_is_for_another_application_that_could_go_nowhere_else():
    assert scheduled_beside("other") == "quick"


# --- the device's pace ----------------------------------------------------------------------------------------------


def latency_key(at_most: bool, *ratios: float) -> float:
    """Return the correction of a device's latency after batches of given ratios.

    Args:
        at_most: whether faster runs are expected, of smaller inputs.
        ratios: the batches' run times as parts of their expected times, in turn.
    """
    binding = LateBinding()
    binding.configured({"app": ServiceTerms(1.0)}, 0.0)
    made = ServingOption("v", 100.0, LatencyModel([(1, 0.1)]), 1, at_most=at_most)
    binding.offered({"d0": {WHOLE: OptionSet([made])}}, 0.0)
    for tick in range(200):
        learn(binding._groups.device("d0"), made, 1, 0.1 * ratios[tick % len(ratios)], float(tick))
    return factor(binding, WHOLE)


def factor(binding: LateBinding, query_class: QueryClass) -> float:
    """Return the expected run time of a class's batches over the profiled one."""
    device = binding._groups.device("d0")
    return device.corrections[device.option_sets[query_class].options[0]]


def test_queries_smaller_than_what_was_measured_do_not_make_a_device_look_unsteady():
    assert latency_key(True, 0.1, 1.0) == pytest.approx(1.0, abs=0.01)
    assert latency_key(False, 0.1, 1.0) > 1.5


def test_a_slow_device_shows_all_the_same():
    assert latency_key(True, 2.0) == pytest.approx(2.0, abs=0.2)


def test_what_ran_is_held_against_its_own_class():
    binding = LateBinding()
    binding.configured({"app": ServiceTerms(1.0, False, (0, 128))}, 0.0)
    menus = {
        name: OptionSet([ServingOption("v", 100.0, LatencyModel([(1, seconds)]), 1)])
        for name, seconds in ((WHOLE, 0.5), (SHORT, 0.01))
    }
    binding.offered({"d0": menus}, 0.0)
    for tick in range(100):
        learn(binding._groups.device("d0"), menus[SHORT].options[0], 1, 0.02, float(tick))
    assert factor(binding, SHORT) == pytest.approx(2.0, abs=0.2)
