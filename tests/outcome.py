"""A run's tests by outcome, in a file: ``pytest -p tests.outcome --outcome FILE``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

#: outcomes that are no failure
GOOD = ("passed", "skipped", "xfailed", "xpassed")
#: a run's tests
COLLECTED = pytest.StashKey[set[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcome", type=Path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node, ids: Iterable[str]) -> None:
    node.config.stash[COLLECTED] = set(ids)


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[COLLECTED] = {item.nodeid for item in session.items}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # xdist's workers have no reporter.
    if reporter := session.config.pluginmanager.getplugin("terminalreporter"):
        ids = {kind: {report.nodeid for report in reporter.stats.get(kind, [])} for kind in (*GOOD, "failed", "error")}
        failed = ids["failed"] | ids.pop("error")
        good = {kind: ids[kind] - failed for kind in GOOD}
        # A worker that crashes again and again leaves tests without any report.
        failed |= session.config.stash.get(COLLECTED, set()).difference(*good.values())
        outcome = {kind: sorted(found) for kind, found in {**good, "failed": failed}.items()}
        session.config.getoption("outcome").write_text(json.dumps(outcome))
