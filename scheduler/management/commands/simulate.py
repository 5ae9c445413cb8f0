"""``manage.py simulate SCENARIO.toml``: run a scenario under a virtual clock and write its results."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from scheduler.simulation import Results, ScenarioError, SimulationError, simulate

#: seconds between two strokes of the progress bar, and its width in characters
STROKE_S = 0.2
WIDTH = 40


class Command(BaseCommand):
    help = "Simulate a scenario with the live system's strategies, batch policies and routers."
    # Neither a database nor Redis nor an appliance is needed.
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser) -> None:
        parser.add_argument("scenario", type=Path, metavar="SCENARIO.toml")
        parser.add_argument("--strategy", help="allocation strategy; implies its own batching and routing")
        parser.add_argument("--batching", help="batch policy")
        parser.add_argument("--routing", help="router")
        parser.add_argument("--out", type=Path, help="folder for the results; by default the scenario's name")

    def handle(self, *args, scenario: Path, out: Path | None = None, **options) -> None:
        bar = _Bar()
        try:
            results = simulate(
                scenario, options["strategy"], options["batching"], options["routing"], progress=bar.show
            )
        except (ScenarioError, SimulationError) as error:
            bar.end()
            raise CommandError(str(error)) from None
        bar.end()
        out = Path(scenario.stem) if out is None else out
        try:
            results.write(out)
        except OSError as error:
            raise CommandError(f"--out: {out} cannot be written: {error.strerror or error}") from None
        self.stdout.write(_told(results, out))


class _Bar:
    """A progress bar on standard error, where that is a terminal."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._next = 0.0

    def show(self, share: float) -> None:
        if self._on and (now := time.monotonic()) >= self._next:
            self._next = now + STROKE_S
            done = round(share * WIDTH)
            sys.stderr.write(f"\r[{'#' * done}{'.' * (WIDTH - done)}] {share:4.0%}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._on:
            sys.stderr.write("\r\033[K")


def _told(results: Results, out: Path) -> str:
    s = results.summary

    def percent(value: float | None) -> str:
        return "none" if value is None else f"{value:.3f}"

    return (
        f"{s['scenario']}: {s['strategy']} with {s['batching']} batches and {s['routing']} routing\n"
        f"  {s['queries']} queries: {s['in_time']} in time, {s['late']} late, {s['dropped']} dropped "
        f"({s['violation_ratio']:.4%} violations)\n"
        f"  effective accuracy {percent(s['effective_accuracy'])}, fluid reference "
        f"{percent(s['fluid_reference_accuracy'])}, largest drop over 10 s {percent(s['max_accuracy_drop_10s'])}\n"
        f"  {s['wall_s']:.2f} s of wall time, {s['solves']} solves of at most {s['max_solve_s']:.3f} s\n"
        f"  {out}/summary.json, per_second.csv, report.html"
    )
