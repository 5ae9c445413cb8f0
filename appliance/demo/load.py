"""The demo's load: ``python -m appliance.demo.load``, until SIGTERM or SIGINT.

Reads the appliance's measured profiles to know what it can carry, waits until it is ready, then sends a slow wave with
sudden bursts (see :mod:`appliance.demo.rates`), and logs the results every ten seconds. A gateway that goes away
costs the queries that it owed, and nothing else. Keys come from ``credentials.json`` rather than from the command line,
where every user of the box could read them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import uvloop

from workers import log
from workers.settings import Settings, SettingsError
from workers.tls import trust_file

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
    """The credentials cannot be read, or lack an entry; says which."""


def read_credentials(path: Path) -> tuple[str, str]:
    """The API key for queries and the token for REST. Raises CredentialsError."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CredentialsError(f"{path}: cannot be read: {error}") from error
    for name in ("api_key", "api_token"):
        if not isinstance(values, dict) or not isinstance(values.get(name), str) or not values[name]:
            raise CredentialsError(f"{path}: {name}: must be there and be text")
    return values["api_key"], values["api_token"]


def calibrate(control_url: str, token: str) -> dict[str, LoadCapacity]:
    """Capacities of the profiles, once they are all there."""
    reported = ""
    while True:
        try:
            return measured(control_url, token, applications())
        except (RestError, LookupError) as error:
            if str(error) != reported:
                reported = str(error)
                logger.info("waiting for profiles", reason=reported)
        time.sleep(CALIBRATE_AGAIN_S)


async def drive(traffic: Traffic, credentials: Path) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    total: dict[str, Counts] = defaultdict(Counter)
    tasks = [
        asyncio.create_task(work)
        for work in (traffic.run(), _report(traffic, total), _follow_key(traffic, credentials), stop.wait())
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


async def _follow_key(traffic: Traffic, credentials: Path) -> None:
    used = ""
    while True:
        await asyncio.sleep(READ_KEY_S)
        try:
            key, _ = read_credentials(credentials)
        except CredentialsError as error:
            logger.warning("credentials not read", reason=str(error))
            continue
        if key != used:
            traffic.use(used := key)


def run(url: str, control_url: str, credentials: Path, seed: int, authorities: Path | None = None) -> None:
    """Calibrate, wait for the gateway, and drive the load. Raises CredentialsError."""
    key, token = read_credentials(credentials)
    chosen = streams(calibrate(control_url, token), seed)
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
    uvloop.run(drive(traffic, credentials))


def main(arguments: list[str] | None = None) -> int:
    """0 when stopped by a signal, 2 when something is wrong from the start."""
    try:
        values = Settings.from_environ()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(prog="python -m appliance.demo.load", description="Drive the demo's load.")
    parser.add_argument("--url", default=values.http.url, help="V2 HTTP, the gateway (default: %(default)s)")
    parser.add_argument("--control-url", default=values.console.url, help="REST (default: %(default)s)")
    parser.add_argument(
        "--credentials",
        type=Path,
        default=values.home / "credentials.json",
        help="file with api_key and api_token (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed sends the same load (default: %(default)s)")
    parser.add_argument(
        "--authorities",
        type=Path,
        default=trust_file(values) if values.http.tls else None,
        help="PEM file of whom to trust with TLS (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    log.configure("load", values.log_level)
    # Until the load begins, a signal ends the process at once.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(chosen.url, chosen.control_url, chosen.credentials, chosen.seed, chosen.authorities)
    except KeyboardInterrupt:
        return 0
    except CredentialsError as error:
        logger.error("load cannot start", reason=str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
