"""The rows of the fault matrix: one declaration each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import httpx2

from benchmarks.growth import Verdict

from . import breaking, disks
from .breaking import Fault, hung, killed
from .checker import Query
from .disks import FSYNC, WRITES, FirstStartsCut, OwnDisk, injected
from .site import Site, SmallSite, TwoGateways

#: seconds that other applications may lose
LOST_S = 1.0
#: seconds until the control plane makes plans again, once what it needs is there
CONTROL_S = 30.0
#: seconds from boot until gateway and node serve, whatever the control plane does
BOOT_S = 5.0

Probe = Callable[[], object]


@dataclass(frozen=True)
class Expected:
    """Figures that a row must keep to.

    Attributes:
        lost_s: of any application, over the whole row; None: not bounded, since nothing could serve.
        served_s: until every application is served again.
        back_s: until :attr:`Row.back` is true.
    """

    lost_s: float | None = LOST_S
    served_s: float | None = None
    back_s: float | None = None


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        text: the fault in words.
        seconds: how long it lasts.
        site: what it runs on; rows of one kind share a site while that is well.
        back: makes a probe that is true once the broken part works again.
        from_start: times count from the beginning of the fault, not from its end.
        cuts: clients' connections may break.
        unstored: nothing can be stored until the fault ends.
        lasting: the fault ends with the row.
        for_good: nothing serves afterwards.
        afterwards: looks at the site and the load's queries at the end; whether all is well, and what is told of it.
    """

    name: str
    text: str
    fault: Fault
    expected: Expected
    seconds: float = 8.0
    site: type[Site] = Site
    back: Callable[[Site], Probe] | None = None
    cuts: bool = False
    unstored: bool = False
    lasting: bool = False
    for_good: bool = False
    from_start: bool = False
    afterwards: Callable[[Site, Sequence[Query]], Verdict] | None = None


# --- probes -----------------------------------------------------------------------------------------------------------


def console_answers(site: Site) -> Probe:
    return lambda: httpx2.get(site.box.console + "/health/", timeout=2).status_code == 200


def new_plan(site: Site) -> Probe:
    least = 0

    def back() -> bool:
        nonlocal least
        newest = site.newest_plan()
        least = least or newest
        return newest > least and site.versions().get("gateway", 0) > least

    return back


def nothing_runs(site: Site) -> Probe:
    return lambda: not site.processes() and not site.box.ports_open()


def devices_up(site: Site) -> Probe:
    def back() -> bool:
        with site.box.rest() as rest:
            return all(one["state"] == "up" for one in rest.get("/devices/", timeout=3).json()["results"])

    return back


# --- rows -------------------------------------------------------------------------------------------------------------

_CONTROL = Expected(back_s=CONTROL_S)
_BOOT = Expected(lost_s=None, served_s=BOOT_S)
_POWER = Expected(lost_s=None, served_s=BOOT_S, back_s=60)
_FAST, _SOON = Expected(served_s=1.0), Expected(served_s=5.0, lost_s=5.0)
#: what rows of a kind share
_AT_ONCE = {"from_start": True}
_FRONT = {"cuts": True, "from_start": True}
_TWO = {"site": TwoGateways, **_FRONT}
_BOOTS = {"seconds": 0.0, "cuts": True, "lasting": True}
_POWER_CUT = {"seconds": 0.0, "site": OwnDisk, "back": new_plan, "cuts": True}


def _control_rows() -> Iterator[Row]:
    parts = {"web": "web", "planning": "the planning worker", "celery": "Celery", "redis": "Redis"}
    for role, text in parts.items():
        back = console_answers if role == "web" else new_plan
        kill, hang = partial(killed, role), partial(hung, role)
        yield Row(f"{role}-killed", f"kill -9 of {text}", kill, _CONTROL, back=back, from_start=True)
        yield Row(f"{role}-hung", f"SIGSTOP of {text}, 20 s", hang, _CONTROL, 20, back=back)
    for role in ("web", "celery", "planning"):
        for error in ("ENOSPC", "EIO"):
            fault, text = partial(injected, role, WRITES, error), f"writes of {role} fail with {error}, 12 s"
            yield Row(f"{error.lower()}-{role}", text, fault, _CONTROL, 12, back=new_plan)
    for role in ("web", "planning", "redis", "node", "gateway"):
        # strace slows what it traces: the time that members lose to it says nothing.
        bounds = Expected(lost_s=None, back_s=CONTROL_S) if role in ("node", "gateway") else _CONTROL
        fault = partial(injected, role, FSYNC, "EIO")
        yield Row(f"fsync-{role}", f"fsync of {role} fails, 12 s", fault, bounds, 12, back=new_plan)


def _power_row(name: str, text: str, fault: Fault, **more) -> Row:
    return Row(f"power-cut-{name}", f"power cut{text}", fault, _POWER, **_POWER_CUT, **more)


def _boot_row(name: str, text: str, prepare: Fault) -> Row:
    return Row(f"boot{name}", f"a start {text}", partial(breaking.boots_with, prepare), _BOOT, **_BOOTS)


#: the short form, without figures that a busy machine could change
QUICK = Row(
    "quick", "kill -9 of one of two executors, and of the gateway 2 s later", breaking.executor_and_gateway_killed,
    Expected(lost_s=None), 1.0, SmallSite, cuts=True,
)  # fmt: skip
_ALL = (
    Row("executor-killed", "kill -9 of one of two executors", partial(killed, "executor"), Expected(), **_AT_ONCE),
    Row("executor-hung", "SIGSTOP of one of two executors, 10 s", partial(hung, "executor"), Expected(), 10),
    Row("node-killed", "kill -9 of the node daemon", partial(killed, "node"), Expected(), back=new_plan, **_AT_ONCE),
    Row("node-hung", "SIGSTOP of the node daemon, 15 s", partial(hung, "node"), Expected(), 15, back=new_plan),
    Row("gateway-killed", "kill -9 of the gateway", partial(killed, "gateway"), _FAST, **_FRONT),
    Row("gateway-hung", "SIGSTOP of the gateway, 15 s", partial(hung, "gateway"), _SOON, 15, **_FRONT),
    Row("second-killed", "kill -9 of the second of two gateways", partial(killed, "gateway-2"), _FAST, **_TWO),
    Row("second-hung", "SIGSTOP of the second of two gateways, 15 s", partial(hung, "gateway-2"), _SOON, 15, **_TWO),
    Row("first-killed", "kill -9 of the first of two gateways (the core)", partial(killed, "gateway"), _FAST, **_TWO),
    Row("first-hung", "SIGSTOP of the first of two gateways, 15 s", partial(hung, "gateway"), _SOON, 15, **_TWO),
    *_control_rows(),
    Row("supervisor-hung", "SIGSTOP of the supervisor, 8 s", partial(hung, "supervisor"), _CONTROL, back=new_plan),
    Row(
        "supervisor-killed", "kill -9 of the supervisor: everything ends, nothing is left",
        partial(killed, "supervisor"), Expected(lost_s=None, back_s=15), 1, back=nothing_runs, for_good=True, **_FRONT,
    ),
    Row(
        "device-lost", "one of two devices lost for 20 s (its executor is killed at each start)",
        breaking.lost_device, Expected(), 20, back=devices_up,
    ),
    Row("redis-flushed", "Redis is flushed (FLUSHALL)", breaking.redis_flushed, _CONTROL, 2, back=new_plan),
    _boot_row("", "with everything there", breaking.nothing),
    _boot_row("-redis-deaf", "while Redis hangs", breaking.redis_deaf),
    _boot_row("-no-database", "without PostgreSQL", breaking.postgres_away),
    Row("all-killed", "kill -9 of everything, and a start", breaking.everything_lost, _BOOT, 1, Site, new_plan, True),
    Row("disk-full", "disk full for 20 s", disks.disk_full, _CONTROL, 20, OwnDisk, new_plan),
    Row(
        "disk-read-only", "the file system turns read-only for 15 s; then a restart",
        disks.disk_read_only, Expected(lost_s=None, back_s=60), 15, OwnDisk, new_plan, cuts=True, unstored=True,
    ),
    _power_row(
        "keys", " while keys are made; those acknowledged are there afterwards",
        partial(disks.power_cut, disks.keys, 3.0), afterwards=disks.acknowledged,
    ),
    _power_row("upload", " in mid-upload", partial(disks.power_cut, disks.uploads, 1.5)),
    _power_row("plan", " in mid-plan", partial(disks.power_cut, disks.plans, 2.2)),
    _power_row("start", "s in five starts, 0.7 to 7 s after each", partial(disks.starts_cut, "")),
    _power_row("migration", "s in five starts that migrate a database with data", partial(disks.starts_cut, "0001")),
    Row(
        "power-cut-first-start", "power cuts in the first five starts; then all works",
        breaking.nothing, _CONTROL, 0, FirstStartsCut, new_plan,
    ),
)  # fmt: skip
ROWS = {row.name: row for row in _ALL}
