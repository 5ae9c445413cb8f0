"""A run's outcome by tests, in a file: ``pytest -p tests.outcome --outcome FILE``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcome", type=Path)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # xdist's workers have no reporter.
    if reporter := session.config.pluginmanager.getplugin("terminalreporter"):
        ids = {kind: {report.nodeid for report in reporter.stats.get(kind, [])} for kind in KINDS}
        failed = ids.pop("failed") | ids.pop("error")
        ids["passed"] -= failed
        # What a worker that crashed too often left undone has no report.
        undone = session.testscollected - len(failed.union(*ids.values()))
        outcome = {"failed": sorted(failed), "undone": undone, **{kind: sorted(ids[kind]) for kind in ids}}
        session.config.getoption("outcome").write_text(json.dumps(outcome))


KINDS = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
