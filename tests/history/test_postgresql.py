"""The same rows in PostgreSQL, recorded by several processes at once and read back over every tier."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests import postgresql
from tests.forked import ForkedProcess, of_commands
from tests.history.test_recording import report
from tests.running import bare_environment

pytestmark = [pytest.mark.wide, postgresql.needed]

RECORD = "from scheduler.history import recording; print(recording.record())"
READ = """
import json
from registry import clock
from scheduler.history import reading
from scheduler.history.models import HistoryPosition
now = int(clock.wall())
found = [reading.series(reading.Range(now - s, now + 10), 100, "digits") for s in (3600, 86400, 86400 * 30)]
sums = [sum(v * one["step"] for v in one["by_variant"]["quick"] if v is not None) > 0 for one in found]
print(json.dumps([[one["resolution"] for one in found], sums, HistoryPosition.objects.get().folds]))
"""


def test_processes_on_postgresql_record_each_second_once(tmp_path, clean_redis):
    from django.conf import settings

    kept = bare_environment()
    environment = {
        **kept,
        "NEREUS_HOME": str(tmp_path),
        "NEREUS_DATABASE_URL": postgresql.database(),
        "NEREUS_REDIS_URL": settings.REDIS_URL,
    }

    def manage(*arguments: str) -> ForkedProcess:
        return of_commands().start("manage.py", *arguments, env=environment, stdout=subprocess.PIPE, text=True)

    for ago in range(40, 0, -1):
        report(ago)
    running = [manage("shell", "-v", "0", "-c", RECORD) for _ in range(2)]
    recorded = [int(process.stdout.read()) for process in running]
    assert sum(recorded) == 40, recorded
    process = manage("shell", "-v", "0", "-c", READ)
    resolutions, sums, folds = json.loads(process.stdout.read())
    assert resolutions == [10, 300, 3600]
    assert sums == [True, True, True]
    assert folds == 1
