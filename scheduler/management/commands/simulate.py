"""``manage.py simulate SCENARIO.toml``: run a scenario under a virtual clock, write its results."""

from __future__ import annotations

import sys
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from scheduler.simulation import Scenario, ScenarioError, SimulationError, SimulationResults, load, simulate, stacks
from scheduler.simulation.ablations import PARTS
from scheduler.simulation.compare import choose
from scheduler.simulation.report import told
from workers.dispatch.stack import Stack


class Command(BaseCommand):
    help = "Simulate a scenario with the stacks of the live system."
    # Neither a database nor Redis nor an appliance is needed.
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser) -> None:
        parser.add_argument("scenario", type=Path, metavar="SCENARIO.toml")
        parser.add_argument("--stack", action="append", help="the stack. Given several times: a comparison")
        parser.add_argument("--compare", metavar="A,B,...", help="stacks to compare, each STACK or STACK:BATCHING")
        parser.add_argument("--batching", help="batch policy instead of the stack's, of all runs that name none")
        parser.add_argument("--without", choices=PARTS, help="take a part of late binding or of the plan search away")
        parser.add_argument("--out", type=Path, help="folder for the results; by default the scenario's name")

    def handle(self, *args, scenario: Path, out: Path | None = None, **options) -> None:
        named = list(options["stack"] or [])
        if options["compare"] is not None:
            named += options["compare"].split(",")
        out = Path(scenario.stem) if out is None else out
        # Drawing is imported where it is needed: mistakes are answered sooner without it.
        from scheduler.simulation.files import staged, write_comparison, write_run

        try:
            world, runs = _checked(scenario, named, options["batching"])
            with staged(out) as stage:
                results = {label: _run(world, label, stack, options["without"]) for label, stack in runs.items()}
                if len(runs) > 1:
                    write_comparison(stage, results)
                else:
                    write_run(stage, next(iter(results.values())))
        except (ScenarioError, SimulationError) as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"--out: {out} cannot be written: {error.strerror or error}") from None
        for result in results.values():
            self.stdout.write(_summary(result))
        self.stdout.write(f"  {out}/{'comparison' if len(results) > 1 else 'summary'}.json, report.html and more")


def _checked(path: Path, named: list[str], batching: str | None) -> tuple[Scenario, dict[str, Stack]]:
    """The scenario, and the stacks that the command or it names.

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
        runs = choose(named, batching)
        if not runs:
            # What the scenario names itself was checked with it.
            own = (world.stack, batching or world.batching) if world is not None else (None, batching)
            stack = stacks.choose(*own)
            runs = {stack.name: stack}
    except ScenarioError as error:
        faults += error.faults
    if faults:
        raise ScenarioError(list(dict.fromkeys(faults)))
    return world, runs


def _run(world: Scenario, label: str, stack: Stack, part: str | None) -> SimulationResults:
    form = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, desc=label, file=sys.stderr, disable=None, leave=False, bar_format=form) as bar:
        return simulate(world, stack, part=part, progress=lambda share: bar.update(share - bar.n))


def _summary(results: SimulationResults) -> str:
    s = results.summary
    return (
        f"{s['scenario']}: {s['strategy']} with {s['batching']} batches and {s['routing']} routing\n  {told(s)}\n"
        f"  {s['wall_s']:.2f} s of wall time, {s['solves']} solves of at most {s['max_solve_s']:.3f} s"
    )
