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
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import uvloop

from workers import log
from workers.settings import Settings, SettingsError
from workers.tls import trust_file

from .capacity import measured
from .counts import QueryCounts
from .drive import Clients, Driver, until_ready
from .manifest import applications
from .rates import LoadCapacity
from .replay import IN_FLIGHT, patience_s, streams
from .rest import RestError

T = TypeVar("T")

REPORT_S = 10.0
CALIBRATE_AGAIN_S = 2.0
#: how often the key is read again: operators rotate it while the load runs
READ_KEY_S = 2.0

logger = log.get("load")


class CredentialsError(Exception):
    """The credentials cannot be read, or lack an entry.

    The message names the file and the entry.
    """


def read_credentials(path: Path) -> tuple[str, str]:
    """The API key for queries and the token for REST.

    Raises:
        CredentialsError: no such file, not JSON, or an entry is missing.
    """
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CredentialsError(f"{path}: cannot be read: {error}") from error
    for name in ("api_key", "api_token"):
        if not isinstance(values, dict) or not isinstance(values.get(name), str) or not values[name]:
            raise CredentialsError(f"{path}: {name}: must be there and be text")
    return values["api_key"], values["api_token"]


async def _aside(work: Callable[[], T]) -> T:
    """Run blocking ``work`` in a thread that never holds up the end of the process.

    A thread of an executor would.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def body() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=body, daemon=True).start()
    return await future


async def calibrate(control_url: str, token: str) -> dict[str, LoadCapacity]:
    """Return capacities from the appliance's profiles.

    Asks again until all are there, and logs each reason to wait once.
    """
    reported = ""
    while True:
        try:
            return await _aside(lambda: measured(control_url, token, applications()))
        except (RestError, LookupError) as error:
            if str(error) != reported:
                reported = str(error)
                logger.info("waiting for profiles", reason=reported)
        await asyncio.sleep(CALIBRATE_AGAIN_S)


async def _report(driver: Driver, total: dict[str, QueryCounts]) -> None:
    while True:
        await asyncio.sleep(REPORT_S)
        _log_period(driver, total)


async def _follow_key(driver: Driver, credentials: Path) -> None:
    """Send with the key that the file holds now."""
    while True:
        await asyncio.sleep(READ_KEY_S)
        try:
            driver.key, _ = read_credentials(credentials)
        except CredentialsError as error:
            logger.warning("credentials not read", reason=str(error))


def _log_period(driver: Driver, total: dict[str, QueryCounts]) -> None:
    for name, counts in driver.take().items():
        logger.info("load", application=name, t=round(driver.elapsed(), 1), **counts.summary())
        # Percentiles of a whole run would keep every latency in memory; they are for the periods.
        counts.latencies_ms, counts.lags_ms = [], []
        total[name].add(counts)
    if driver.last_error:
        logger.warning("load error", last=driver.last_error)
        driver.last_error = ""


async def run(address: str, control_url: str, credentials: Path, seed: int, authorities: Path | None = None) -> None:
    """Drive the load until SIGTERM or SIGINT.

    Raises:
        CredentialsError: the file of key and token cannot be used.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    work = asyncio.create_task(_work(address, control_url, credentials, seed, authorities))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not work.done():
        work.cancel()
    try:
        await work
    except asyncio.CancelledError:
        pass


async def _work(address: str, control_url: str, credentials: Path, seed: int, authorities: Path | None) -> None:
    key, token = read_credentials(credentials)
    capacities = await calibrate(control_url, token)
    chosen = streams(capacities, seed)
    for stream in chosen:
        capacity = stream.profile.capacity
        logger.info(
            "load planned",
            application=stream.application.name,
            most_accurate_qps=round(capacity.most_accurate, 1),
            least_accurate_qps=round(capacity.least_accurate, 1),
            limit_qps=round(stream.profile.limit, 1),
        )
    total = {stream.application.name: QueryCounts() for stream in chosen}
    async with Clients(address, limit=IN_FLIGHT, timeout_s=patience_s(chosen), authorities=authorities) as clients:
        driver = Driver(clients, chosen, key)
        beside: list[asyncio.Task] = []
        try:
            await until_ready(clients)
            logger.info("load begins", address=address)
            beside = [
                asyncio.create_task(_report(driver, total)),
                asyncio.create_task(_follow_key(driver, credentials)),
            ]
            await driver.run()
        finally:
            for task in beside:
                task.cancel()
            _log_end(driver, total)


def _log_end(driver: Driver, total: dict[str, QueryCounts]) -> None:
    for name, counts in driver.take().items():
        total[name].add(counts)
        # Percentiles were logged period by period; those of the last one would pass for the whole run's.
        total[name].latencies_ms, total[name].lags_ms = [], []
        logger.info("load ended", application=name, **total[name].summary())


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run the load.

    Returns:
        0 when stopped by a signal, 2 when something is wrong from the start.
    """
    try:
        values = Settings.from_environ()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(prog="python -m appliance.demo.load", description="Drive the demo's load.")
    parser.add_argument("--grpc", default=values.grpc.local, help="V2 gRPC, the gateway (default: %(default)s)")
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
        default=trust_file(values) if values.grpc.tls else None,
        help="PEM file of whom to trust with TLS over gRPC (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    log.configure("load", values.log_level)
    try:
        uvloop.run(run(chosen.grpc, chosen.control_url, chosen.credentials, chosen.seed, chosen.authorities))
    except CredentialsError as error:
        logger.error("load cannot start", reason=str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
