"""Options of a device: the plan's residents that are loaded and in time."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from workers.dispatch.binding import QueryClass
from workers.gateway.device_options import AROUND_S, DeviceOptions
from workers.protocol.frames import WarmVariant
from workers.protocol.specs import ApplicationSpec, DevicePlan, PlanSpec, ProfilePoint, Resident, Signature, VariantSpec


@dataclasses.dataclass
class World:
    options: DeviceOptions
    moving: set[str]

    def plan(self, version: int, *planned: Resident, standby: tuple[Resident, ...] = ()) -> None:
        self.options.plan(PlanSpec(version, (DevicePlan("d0", "unix:/d0", planned, standby_residents=standby),)))
        self.moving = {"app", "other"}

    def offered(self, *warm: tuple[int, str]) -> dict[str, list]:
        self.options.moved(self.moving.__contains__)
        made = self.options.of("d0", tuple(WarmVariant(id, f"v{id}", name, 90.0, True) for id, name in warm))
        return {
            name.application: [(o.variant, o.max_rows) for o in option_set.options] for name, option_set in made.items()
        }


def application(name: str = "app", slo_s: float = 0.3, weight: float = 1.0) -> ApplicationSpec:
    return ApplicationSpec(name, slo_s, Signature((), ()), weight=weight)


def resident(
    id: int, seconds: float = 0.01, accuracy: float = 100.0, name: str = "app", sizes=(1, 2, 4, 8)
) -> Resident:
    points = tuple(ProfilePoint(rows, seconds * rows, 3 * seconds * rows, 2 * seconds * rows) for rows in sizes)
    return Resident(VariantSpec(id, f"v{id}", name, "0" * 64, 1, accuracy, accuracy), 2, 1.0, 0.5, points)


@pytest.fixture
def world() -> World:
    options = DeviceOptions()
    options.configure({"app": application(), "other": application("other")}, 512)
    return World(options, set())


def test_what_is_planned_or_stands_by_is_offered_once_it_is_warm(world):
    world.plan(1, resident(1), standby=(resident(2, 0.001, 80.0),))
    assert world.offered() == {}
    assert world.offered((2, "app")) == {"app": [(2, 8)]}
    assert world.offered((1, "app"), (2, "app"), (3, "app")) == {"app": [(1, 8), (2, 8)]}


def test_batches_end_within_the_slo_and_within_what_executors_take(world):
    world.plan(1, resident(1, 0.1), resident(2, 0.4), resident(3, 0.29, name="other"))
    # Three rows are not profiled; between two and four the time rises evenly.
    assert world.offered((1, "app"), (2, "app"), (3, "other")) == {"app": [(1, 2)], "other": [(3, 1)]}
    world.options.configure({"app": application(slo_s=5.0)}, 3)
    assert world.offered((1, "app"), (2, "app")) == {"app": [(1, 3), (2, 3)]}


def test_expected_is_the_median_and_what_a_batch_needs_around_its_run(world):
    world.plan(1, resident(1))
    (option,) = world.options.of("d0", (WarmVariant(1, "v1", "app", 90.0, True),))[QueryClass("app")].options
    assert [option.seconds(rows) for rows in (1, 2, 8)] == pytest.approx(
        [0.01 + AROUND_S, 0.02 + AROUND_S, 0.08 + AROUND_S]
    )


def test_an_application_is_worth_its_weight(world):
    world.options.configure({"app": application(weight=3.0)}, 512)
    world.plan(1, resident(1, accuracy=50.0))
    (option,) = world.options.of("d0", (WarmVariant(1, "v1", "app", 90.0, True),))[QueryClass("app")].options
    assert option.utility == 150.0


def test_an_older_plan_holds_until_the_application_has_moved(world):
    world.plan(1, resident(1), resident(9, name="other"))
    world.plan(2, resident(2))
    warm = ((1, "app"), (2, "app"), (9, "other"))
    assert world.offered(*warm) == {"app": [(1, 8)], "other": [(9, 8)]} or world.offered(*warm)["app"][0][0] in (1, 2)
    world.moving.discard("app")
    assert world.offered(*warm) == {"app": [(2, 8)], "other": [(9, 8)]}
    world.moving.clear()
    assert world.offered(*warm) == {"app": [(2, 8)]}


def test_a_profile_that_says_nothing_offers_nothing(world):
    world.plan(
        1,
        msgspec.structs.replace(resident(1), profile=()),
        msgspec.structs.replace(
            resident(2), profile=(ProfilePoint(1, 0.0, 0.0, 0.0), ProfilePoint(2, float("nan"), 1, 1))
        ),
    )
    assert world.offered((1, "app"), (2, "app")) == {}


def test_nothing_is_made_anew_while_nothing_changes(world):
    world.plan(1, resident(1))
    warm = (WarmVariant(1, "v1", "app", 90.0, True),)
    made = world.options.of("d0", warm)
    assert world.options.of("d0", tuple(warm)) is made
    world.options.configure({"app": application(slo_s=0.05)}, 512)
    assert world.options.of("d0", warm)[QueryClass("app")].options[0].max_rows == 4
