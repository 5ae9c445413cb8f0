"""``manage.py simulate SCENARIO.toml``: run a scenario and write its results.

It runs under a virtual clock.
"""

from __future__ import annotations

import sys
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from scheduler.simulation import Scenario, ScenarioError, SimulationError, SimulationResults, load, simulate, stacks
from scheduler.simulation.compare import choose
from workers.dispatch.stack import Stack

#: a reference that leaves out less than this (relative) serves everything
NEARLY_ALL = 1e-5


class Command(BaseCommand):
    help = "Simulate a scenario with the stacks of the live system."
    # Neither a database nor Redis nor an appliance is needed.
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser) -> None:
        parser.add_argument("scenario", type=Path, metavar="SCENARIO.toml")
        parser.add_argument(
            "--stack",
            "--strategy",
            action="append",
            default=None,
            help="the stack: allocation strategy, binding and batching. Given several times: a comparison",
        )
        parser.add_argument(
            "--compare",
            metavar="A,B,...",
            help="stacks to compare, each STACK, STACK:BATCHING or STACK:BATCHING:ROUTING",
        )
        parser.add_argument("--batching", help="batch policy instead of the stack's, of all runs that name none")
        parser.add_argument("--routing", help="routing instead of the stack's, of all runs that name none")
        parser.add_argument("--out", type=Path, help="folder for the results; by default the scenario's name")

    def handle(self, *args, scenario: Path, out: Path | None = None, **options) -> None:
        named = list(options["stack"] or [])
        if options["compare"] is not None:
            named += options["compare"].split(",")
        out = Path(scenario.stem) if out is None else out
        # Drawing is imported where it is needed: mistakes are answered sooner without it.
        from scheduler.simulation.files import staged, write_comparison, write_run

        try:
            world, runs = _checked(scenario, named, options["batching"], options["routing"])
            with staged(out) as stage:
                if len(runs) > 1:
                    results = {
                        label: _run(world, label, stack.name, stack.batching, stack.routing)
                        for label, stack in runs.items()
                    }
                    write_comparison(stage, results)
                else:
                    stack = next(iter(runs.values()), None)
                    chosen = (stack.name, stack.batching, stack.routing) if stack else (
                        None, options["batching"], options["routing"],
                    )  # fmt: skip
                    results = {"": _run(world, world.name, *chosen)}
                    write_run(stage, results[""])
        except (ScenarioError, SimulationError) as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"--out: {out} cannot be written: {error.strerror or error}") from None
        for result in results.values():
            self.stdout.write(_summary(result))
        self.stdout.write(f"  {out}/{'comparison' if len(results) > 1 else 'summary'}.json, report.html and more")


def _checked(
    path: Path, named: list[str], batching: str | None, routing: str | None
) -> tuple[Scenario, dict[str, Stack]]:
    """The scenario and the stacks that the command names.

    Raises:
        ScenarioError: with the faults of both together.
    """
    faults: list[str] = []
    world, runs = None, {}
    try:
        world = load(path)
    except ScenarioError as error:
        faults += error.faults
    try:
        runs = choose(named, batching, routing)
        if not runs:
            # As the run will be put together; what the scenario names itself was checked with it.
            own = (world.stack, world.batching, world.routing) if world is not None else (None, None, None)
            stacks.choose(own[0], own[1] if batching is None else batching, own[2] if routing is None else routing)
    except ScenarioError as error:
        faults += error.faults
    if faults:
        raise ScenarioError(list(dict.fromkeys(faults)))
    return world, runs


def _run(world, label: str, *chosen: str | None) -> SimulationResults:
    form = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, desc=label, file=sys.stderr, disable=None, leave=False, bar_format=form) as bar:
        return simulate(world, *chosen, progress=lambda share: bar.update(share - bar.n))


def _summary(results: SimulationResults) -> str:
    s = results.summary

    def percent(value: float | None) -> str:
        return "none" if value is None else f"{value:.3f}"

    def reference(name: str) -> str:
        served = s[f"{name}_served"]
        # Beside all demand that is served there is nothing to say.
        part = "" if served is None or served > 1 - NEARLY_ALL else f" while it serves {served:.2%}"
        return f"{percent(s[f'{name}_accuracy'])}{part}"

    return (
        f"{s['scenario']}: {s['strategy']} with {s['batching']} batches and {s['routing']} routing\n"
        f"  {s['queries']} queries: {s['in_time']} in time, {s['late']} late, {s['dropped']} dropped "
        f"({s['violation_ratio']:.4%} violations)\n"
        f"  effective accuracy {percent(s['effective_accuracy'])}, largest drop over 10 s "
        f"{percent(s['max_accuracy_drop_10s'])}, fluid references {reference('fluid_reference')} "
        f"(half the SLO) and {reference('fluid_reference_slo')} (the SLO)\n"
        f"  {s['wall_s']:.2f} s of wall time, {s['solves']} solves of at most {s['max_solve_s']:.3f} s"
    )
