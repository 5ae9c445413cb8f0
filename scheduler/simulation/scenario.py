"""The simulator's front door: a scenario file, checked in full before a run."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scheduler.allocation.problem import Allocation, CostWeights, Problem
from scheduler.control.demand import QUANTILE

from . import stacks
from .arrivals import Trace, read_generator, read_trace
from .capacities import read_capacities
from .largest_second import ALL, TREND
from .profiles import Model, read_profiles
from .tables import ScenarioError, Table, shown


@dataclass(frozen=True)
class ControlSettings:
    """The controller's times, and what it may assume.

    Attributes:
        period_s: between two regular plans.
        burst_check_s: between two checks for bursts.
        initial_qps: queries/s assumed for each application before any arrivals.
        solve_s: limit of a solve in wall time. A solve that it cuts short is counted, for results may then differ from
            run to run.
    """

    period_s: float = 10.0
    burst_check_s: float = 1.0
    initial_qps: float = 10.0
    solve_s: float = 10.0
    forecaster: str = TREND


@dataclass(frozen=True)
class Start:
    """A state in which a run begins: a cluster that serves by a plan.

    The plan's variants are loaded.

    Attributes:
        problem: of the plan in force; later plans change its demand, what is loaded and what is in force, no more.
        allocation: the plan in force.
        history: (second, {application: items}) before the run, oldest first; the run begins with second 0.
        quantile: of demand, that later plans are made for.
    """

    problem: Problem
    allocation: Allocation
    history: Sequence[tuple[int, Mapping[str, float]]]
    quantile: float = QUANTILE


@dataclass(frozen=True)
class Scenario:
    """Everything that a simulation needs.

    Attributes:
        devices: (name, type), in the order of the file.
        slo_s: seconds by application.
        max_resident: by device type that is limited; ``cost``: by device type whose cost is not 1.
        load_time_s: of a load whose variant has none of its own.
        network_s: delay between core and device, each way.
        profile_noise: spread of run times; ``run_ratios`` replaces it where they were measured: by variant's id, run
            times over the profile's, all equally likely.
        profile_error: each variant on each device type takes its profile times a factor of its own, between 1 less this
            and 1 plus this, which planner and dispatcher do not know.
        stall_s: seconds by which one batch in ``stall_every`` takes longer, at random; 0: none does.
        make_before_break: devices that a published stack does not use load what its next plan places there before that
            plan is adopted.
        start: the state in which the run begins; None: nothing is loaded, and no demand is known.
    """

    name: str
    models: tuple[Model, ...]
    arrivals: Trace
    devices: tuple[tuple[str, str], ...]
    slo_s: Mapping[str, float]
    max_resident: Mapping[str, int] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    load_time_s: float = 0.0
    network_s: float = 0.0
    profile_noise: float = 0.0
    profile_error: float = 0.0
    stall_s: float = 0.0
    stall_every: float = 100.0
    run_ratios: Mapping[str, Sequence[float]] = field(default_factory=dict)
    seed: int = 0
    costs: CostWeights = field(default_factory=CostWeights)
    make_before_break: bool = False
    control: ControlSettings = ControlSettings()
    stack: str | None = None
    batching: str | None = None
    start: Start | None = None

    @property
    def applications(self) -> tuple[str, ...]:
        return self.arrivals.names

    def load_s(self, model: Model) -> float:
        return self.load_time_s if model.load_s is None else model.load_s

    @property
    def instant_loads(self) -> bool:
        return not any(self.load_s(model) for model in self.models)


def load(path: Path | str) -> Scenario:
    path = Path(path)
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise ScenarioError([f"scenario: {path} cannot be read: {error.strerror or error}"]) from None
    except ValueError as error:
        # A fault in TOML or UTF-8, or an integer with more digits than Python reads.
        raise ScenarioError([f"scenario: {path} is not TOML: {error}"]) from None
    return parse(values, path.parent, path.stem)


def parse(values: Mapping[str, object], folder: Path, name: str = "scenario") -> Scenario:
    faults: list[str] = []
    top = Table(values, "", faults)
    name = top.text("name", name)
    profiles = top.text("profiles")
    column = top.text("latency", "p50_ms")
    batches = _batches(top)
    before = len(faults)
    devices = _devices(top)
    # With a wrong count the types are not known: the other tables are then checked against all profiles.
    kinds = {kind for _, kind in devices} if len(faults) == before else None
    max_resident = top.numbers("max_resident", 1, 10_000, whole=True)
    cost = top.numbers("cost", 0.001, 1e6)
    for table, kinds_named in (("max_resident", max_resident), ("cost", cost)):
        for kind in kinds_named:
            if kind not in top.table("devices").values:
                top.fault(f"{table}.{kind}", "no such device type in [devices]")
    settings = {
        "load_time_s": top.number("load_time_s", 0.0, 0, 3600),
        "network_s": top.number("network_ms", 0.0, 0, 60_000) / 1000,
        "profile_noise": top.number("profile_noise", 0.0, 0, 2),
        "profile_error": top.number("profile_error", 0.0, 0, 0.9),
        "stall_s": top.number("stall_ms", 0.0, 0, 60_000) / 1000,
        "stall_every": top.number("stall_every", 100.0, 1, 1e9),
        "seed": top.number("seed", 0, 0, 2**53, whole=True),
        "costs": _costs(top.table("costs")),
        "make_before_break": _flag(top, "make_before_break"),
    }
    slo = top.numbers("slo_ms", 0.001, 3_600_000)
    control = _control(top.table("control"))
    capacities = top.text("capacities") if "capacities" in top else top.raw("capacities")
    chosen = _choice(top)
    trace = top.text("trace") if "trace" in top else top.raw("trace")
    generator = top.table("generator")
    if ("trace" in top) == ("generator" in top):
        top.fault("trace", "either a trace or a [generator] is needed, and not both")
    top.finish()
    models: tuple[Model, ...] = ()
    if profiles:
        try:
            models = read_profiles(folder / profiles, column, batches, kinds)
            models = read_capacities(folder / capacities, models) if capacities else models
        except ScenarioError as error:
            faults += error.faults
    applications = tuple(dict.fromkeys(model.application for model in models))
    slo_s = _slo(top, slo, applications)
    if "generator" in top:
        arrivals = _generated(generator, applications, settings["seed"])
    else:
        arrivals = _traced(folder / trace if trace else None, applications, faults)
    if faults:
        raise ScenarioError(list(dict.fromkeys(faults)))
    return Scenario(
        name=name,
        models=models,
        arrivals=arrivals,
        devices=devices,
        slo_s=slo_s,
        max_resident=max_resident,
        cost=cost,
        control=control,
        **settings,
        **chosen,
    )


def _choice(top: Table) -> dict[str, str | None]:
    chosen = {key: (top.text(key) or None) if key in top else top.raw(key) for key in ("stack", "batching")}
    try:
        stacks.choose(**chosen)
    except ScenarioError as error:
        top.faults += error.faults
    return chosen


def _generated(table: Table, applications: tuple[str, ...], seed: int) -> Trace:
    generated = read_generator(table, applications or None)
    return Trace(applications, (), ()) if table.faults else generated.arrivals(applications, seed)


def _traced(path: Path | None, applications: tuple[str, ...], faults: list[str]) -> Trace:
    try:
        if path is not None:
            return read_trace(path, applications or None)
    except ScenarioError as error:
        faults += error.faults
    return Trace(applications, (), ())


def _batches(top: Table) -> tuple[int, ...] | None:
    listed = top.raw("batches")
    if listed is None:
        return None
    good = isinstance(listed, list) and all(isinstance(b, int) and not isinstance(b, bool) and b >= 1 for b in listed)
    if not good or not listed:
        top.fault("batches", f"must be a list of whole numbers of at least 1, not {shown(listed)}")
        return None
    return tuple(listed)


def _devices(top: Table) -> tuple[tuple[str, str], ...]:
    counts = top.numbers("devices", 0, 100_000, whole=True)
    if sum(counts.values()) < 1:
        top.fault("devices", "at least one device is needed, a count by device type")
    return tuple((f"{kind}-{i}", kind) for kind, count in counts.items() for i in range(int(count)))


def _slo(top: Table, slo_ms: Mapping[str, float], applications: tuple[str, ...]) -> dict[str, float]:
    for name in slo_ms:
        if applications and name != "default" and name not in applications:
            top.fault(f"slo_ms.{name}", f"has no profile; the applications are {', '.join(applications)}")
    missing = [name for name in applications if name not in slo_ms and "default" not in slo_ms]
    if missing or not slo_ms:
        top.fault("slo_ms", f"needs a default, or a value for each of {', '.join(missing) or 'the applications'}")
        return {}
    return {name: slo_ms.get(name, slo_ms.get("default", 0.0)) / 1000 for name in applications}


def _control(table: Table) -> ControlSettings:
    usual = ControlSettings()
    control = ControlSettings(
        period_s=table.number("period_s", usual.period_s, 0.1, 1e6),
        burst_check_s=table.number("burst_check_s", usual.burst_check_s, 0.01, 1e6),
        initial_qps=table.number("initial_qps", usual.initial_qps, 0, 1e6),
        solve_s=table.number("solve_s", usual.solve_s, 0.05, 3600),
        forecaster=table.text("forecaster", usual.forecaster, ALL),
    )
    table.finish()
    return control


def _flag(table: Table, key: str) -> bool:
    value = table.raw(key, False)
    if not isinstance(value, bool):
        table.fault(key, f"must be true or false, not {shown(value)}")
    return value is True


def _costs(table: Table) -> CostWeights:
    usual = CostWeights()
    budget = table.number("budget", None, 1, 1e6, whole=True) if "budget" in table else table.raw("budget")
    costs = CostWeights(
        accuracy=table.number("accuracy", usual.accuracy, 0, 1e6),
        core=table.number("core", usual.core, 0, 1e6),
        load_s=table.number("load_s", usual.load_s, 0, 1e6),
        budget=None if budget is None else int(budget),
    )
    table.finish()
    return costs
