"""The demo's load: ``python -m appliance.demo.load``, until SIGTERM or SIGINT.

Reads the appliance's measured profiles to know what it can carry, waits until it is ready, then sends a slow wave with
sudden bursts (see :mod:`appliance.demo.rates`), and logs the results every ten seconds. A gateway that goes away
costs the queries that it owed, and nothing else. Keys come from ``credentials.json`` rather than from the command line,
where every user of the box could read them.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import uvloop

from appliance.secrets import CREDENTIALS, credentials
from workers import log
from workers.settings import Settings, SettingsError
from workers.trust.control_plane import trust_file

from .capacity import measured
from .manifest import applications
from .rates import LoadCapacity
from .rest import RestError
from .traffic import Counts, Traffic, latencies, streams, summary, wait_ready

REPORT_S = 10.0
CALIBRATE_AGAIN_S = 2.0
#: how often the key is read again: operators rotate it while the load runs
READ_KEY_S = 2.0

logger = log.get("load")


class CredentialsError(Exception):
    """The credentials lack an entry; says which."""


def credential(home: Path, name: str) -> str:
    """The ``api_key`` or ``api_token`` of this home. Raises CredentialsError."""
    if not (value := credentials(home).get(name)):
        raise CredentialsError(f"{home / CREDENTIALS}: has no {name}")
    return value


def calibrate(control_url: str, token: str) -> dict[str, LoadCapacity]:
    reported = ""
    while True:
        try:
            return measured(control_url, token, applications())
        except (RestError, LookupError) as error:
            if str(error) != reported:
                reported = str(error)
                logger.info("waiting for profiles", reason=reported)
        time.sleep(CALIBRATE_AGAIN_S)


async def drive(traffic: Traffic, home: Path) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    total: dict[str, Counts] = defaultdict(Counter)
    tasks = [
        asyncio.create_task(work)
        for work in (traffic.run(), _report(traffic, total), _follow_key(traffic, home), stop.wait())
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await traffic.close()
    for name, records in traffic.take().items():
        total[name].update(traffic.count(records))
        logger.info("load ended", application=name, **summary(total[name]))


async def _report(traffic: Traffic, total: dict[str, Counts]) -> None:
    while True:
        await asyncio.sleep(REPORT_S)
        for name, records in traffic.take().items():
            counts = traffic.count(records)
            total[name].update(counts)
            values = {**summary(counts), **latencies(records)}
            logger.info("load", application=name, t=round(traffic.elapsed(), 1), **values)
        if error := traffic.last_error():
            logger.warning("load error", last=error)


async def _follow_key(traffic: Traffic, home: Path) -> None:
    used = ""
    while True:
        await asyncio.sleep(READ_KEY_S)
        try:
            key = credential(home, "api_key")
        except CredentialsError as error:
            logger.warning("credentials not read", reason=str(error))
            continue
        if key != used:
            traffic.use(used := key)


def run(values: Settings) -> None:
    """Calibrate, wait for the gateway, and drive the load. Raises CredentialsError."""
    url, authorities = values.http.url, trust_file(values) if values.http.tls else None
    key = credential(values.home, "api_key")
    chosen = streams(calibrate(values.console.url, credential(values.home, "api_token")))
    for stream in chosen:
        capacity = stream.profile.capacity
        logger.info(
            "load planned",
            application=stream.application.name,
            most_accurate_qps=round(capacity.most_accurate, 1),
            least_accurate_qps=round(capacity.least_accurate, 1),
            limit_qps=round(stream.profile.limit, 1),
        )
    traffic = Traffic(url, key, chosen, authorities)
    wait_ready(url, authorities)
    logger.info("load begins", url=url)
    uvloop.run(drive(traffic, values.home))


def main() -> int:
    """0 when stopped by a signal, 2 when something is wrong from the start."""
    try:
        values = Settings.from_environ()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    log.configure("load", values.log_level)
    # Until the load begins, a signal ends the process at once.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(values)
    except KeyboardInterrupt:
        return 0
    except CredentialsError as error:
        logger.error("load cannot start", reason=str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
