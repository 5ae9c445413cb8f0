"""The whole suite: the gate, the wide step, a sample on Python 3.13, then alone what failed in any.

``make test`` runs it: ``python -m tests [ENVIRONMENT]``, where the environment is that of Python 3.13. A test that
fails beside others and passes alone, in one process on a quiet machine, does not fail the run. It is listed at the end
and in ``dist/passed-only-alone.txt``, to be mended. Tests are named, not left to ``--lf``, which runs everything where
it knows none of those that failed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.outcome import GOOD

#: for each step the processes, as tests wait more than they compute, and the tests that it runs
STEPS = {"gate": ("-n", "3", "-m", "not wide and not long"), "wide": ("-n", "2", "-m", "wide and not long")}
#: a pure core, an executor, a gateway and a whole appliance, for another Python
SAMPLE = (
    "tests/v2",
    "tests/executor/test_dispatches.py",
    "tests/gateway/test_process.py",
    "tests/appliance/test_lifecycle.py",
)
#: seconds that a step may take: a multiple of what it takes on two cores
LIMIT_S = 1800
#: failures that may be the machine's; more are not run again
MOST = 50
KEPT = Path("dist")


def run(step: str, python: str, *options: str) -> tuple[int, dict[str, list[str]]]:
    """Run pytest once: its exit status, and the tests by outcome, none where it could not say."""
    print(f"\n{step}: pytest {' '.join(options)}", flush=True)
    file = KEPT / f"{step}.json"
    file.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-p", "tests.outcome", "--outcome", str(file), *options]
    with subprocess.Popen(command) as process:
        try:
            status = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"\n{step}: stopped after {LIMIT_S} s", flush=True)
            # As Ctrl-C, upon which pytest says how far it came.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
            status = 124
    return status, json.loads(file.read_text()) if file.exists() else {kind: [] for kind in (*GOOD, "failed")}


def main(newer: str = "") -> int:
    began = time.monotonic()
    KEPT.mkdir(exist_ok=True)
    steps = {step: (sys.executable, options) for step, options in STEPS.items()}
    if (Path(newer) / ".installed").exists():
        steps["3.13"] = (f"{newer}/bin/python", ("-n", "2", *SAMPLE))
    counts, passed, alone = dict.fromkeys(("failed", *GOOD), 0), True, []
    for step, (python, options) in steps.items():
        # Those of a file share what is made for it, and those of a folder, which follow each other, its appliance.
        status, outcome = run(step, python, "--dist", "loadfile", "--no-loadscope-reorder", *options)
        counts = {kind: count + len(outcome[kind]) for kind, count in counts.items()}
        alone += [(python, test) for test in outcome["failed"]]
        # 1: tests failed. Others are not about single tests: a file cannot be imported, or nothing was collected.
        if status != 0 and (status != 1 or not outcome["failed"]):
            print(f"{step}: fails, whatever runs alone: pytest's exit status is {status}")
            passed = False
    quiet = []
    if len(alone) <= MOST and all("::" in test for _, test in alone):
        for python in dict.fromkeys(python for python, _ in alone):
            status, outcome = run("alone", python, "-n", "0", *(test for of, test in alone if of == python))
            quiet += [(python, test) for test in outcome["passed"]]
            passed = passed and status == 0
    passed = passed and sorted(quiet) == sorted(alone)
    if quiet:
        names = [test for _, test in quiet]
        print("\nPassed only alone, which is to be mended (kept in dist/passed-only-alone.txt):", *names, sep="\n  ")
        with (KEPT / "passed-only-alone.txt").open("a") as kept:
            kept.writelines(f"{time.strftime('%Y-%m-%d %H:%M')} {test}\n" for test in names)
    counts["failed"] -= len(quiet)
    counts["passed"] += len(quiet)
    total = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    without = "" if "3.13" in steps else ", without Python 3.13, which is not here"
    print(f"\n{total or 'no tests ran'} in {time.monotonic() - began:.2f}s{without}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
