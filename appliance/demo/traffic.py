"""The demo's queries: when they are due, and how they ended."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import random
import ssl
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import numpy as np

from appliance.load.records import ABANDONED, HTTP, UNSENT, Records, quantile
from appliance.load.requests import v2_request
from appliance.load.sender import Load, Sender

from .manifest import DemoApplication, applications
from .rates import LoadCapacity, RateProfile, arrivals

#: connections at first, which several gateways share out among themselves
CONNECTIONS = 8
#: queries that may wait for an answer at once; ample for what the demo's bursts leave waiting within any SLO
IN_FLIGHT = 512
#: how long an answer is waited for, in SLOs: a query so late is lost to any client
PATIENCE = 10
#: statuses of overload
REFUSED = (503, 504)
#: how long until a gateway is asked again whether it is ready
POLL_S = 0.5

#: Sums over queries: ``sent`` and how they ended, ``unsent`` (too many in flight), ``abandoned`` (in flight when the
#: load was stopped: no ratio contains them), and over answers in time ``accuracy`` and ``variant NAME``.
Counts = Counter[str]


@dataclass(frozen=True)
class QueryStream:
    """One application's queries; their times and rows are drawn from the seed."""

    application: DemoApplication
    profile: RateProfile
    seed: int = 0


def streams(capacities: Mapping[str, LoadCapacity], seed: int = 0) -> list[QueryStream]:
    """A stream for each application with a capacity, spread over the cycle."""
    chosen = [application for application in applications() if application.name in capacities]
    return [
        QueryStream(application, RateProfile(capacities[application.name], seed + place, place / len(chosen)), seed)
        for place, application in enumerate(chosen)
    ]


class Traffic:
    """The queries of some streams on their way to a gateway.

    A query is counted in the period in which it ends, and its latency runs from the moment it was due, so a load that
    falls behind cannot hide it.

    Args:
        url: the gateway's V2 HTTP.
        authorities: PEM file of whom to trust with TLS.
        patience_s: an answer that takes longer counts as none; default: :data:`PATIENCE`.
    """

    def __init__(
        self,
        url: str,
        key: str,
        chosen: Sequence[QueryStream],
        authorities: Path | None = None,
        patience_s: float = 0.0,
        most: int = IN_FLIGHT,
    ):
        at = urlsplit(url)
        self._streams = chosen
        self._begun = time.perf_counter()
        self._samples: list[tuple[str, np.ndarray, str]] = []
        #: by stream, the requests of its application
        self._requests: list[range] = []
        for stream in chosen:
            name = stream.application.signature["inputs"][0]["name"]
            rows = np.asarray(stream.application.samples()[name], np.float32)
            self._requests.append(range(len(self._samples), len(self._samples) + len(rows)))
            self._samples += [(stream.application.name, row[np.newaxis], name) for row in rows]
        load = Load(
            port=at.port,
            requests=[],
            answers={},
            connections=CONNECTIONS,
            patience_s=patience_s or PATIENCE * max(stream.application.slo_ms for stream in chosen) / 1000,
            authorities=str(authorities) if at.scheme == "https" and authorities else "",
            host=at.hostname,
            most=most,
        )
        self._sender = Sender(load)
        self.use(key)

    def use(self, key: str) -> None:
        self._sender.load.requests = [v2_request(name, key, row, name=tensor) for name, row, tensor in self._samples]

    def elapsed(self) -> float:
        return time.perf_counter() - self._begun

    async def run(self, seconds: float = math.inf) -> None:
        with contextlib.suppress(OSError):
            await self._sender.connect(CONNECTIONS)
        self._begun = time.perf_counter()
        due = heapq.merge(*(self._due(stream, own) for stream, own in zip(self._streams, self._requests, strict=True)))
        await self._sender.open(itertools.takewhile(lambda query: query[0] < seconds, due), self._begun)

    def _due(self, stream: QueryStream, own: range) -> Iterator[tuple[float, int]]:
        draw = random.Random(f"arrivals:{stream.seed}:{stream.application.name}")
        return ((at, draw.choice(own)) for at in arrivals(stream.profile, draw))

    async def close(self) -> None:
        await self._sender.close()

    def take(self) -> dict[str, Records]:
        """What ended since the last call, by application."""
        rows = self._sender.book.rows(self._begun)
        self._sender.book.forget()
        return {
            stream.application.name: Records(
                rows[(rows["request"] >= own.start) & (rows["request"] < own.stop)],
                HTTP,
                stream.application.slo_ms / 1000,
            )
            for stream, own in zip(self._streams, self._requests, strict=True)
        }

    def count(self, records: Records) -> Counts:
        statuses, in_time = records.rows["status"], records.in_time
        ends = {
            "in_time": in_time,
            "late": records.answered & ~in_time,
            "refused": np.isin(statuses, REFUSED),
            "unsent": statuses == UNSENT,
            "abandoned": statuses == ABANDONED,
        }
        found = Counter({name: int(np.count_nonzero(which)) for name, which in ends.items()})
        found["failed"] = len(records) - found.total()
        found["sent"] = len(records) - found["unsent"]
        found["accuracy"] = float(records.rows["accuracy"][in_time].sum())
        for place, name in enumerate(self._sender.book.variants):
            found[f"variant {name}"] = int(np.count_nonzero(records.rows["variant"][in_time] == place))
        return found

    def last_error(self) -> str:
        """The newest error since the last call in words; empty: there was none."""
        notes, self._sender.book.notes = self._sender.book.notes, []
        return notes[-1] if notes else ""


def summary(found: Counts) -> dict[str, object]:
    """Return plain values for a log line or a report.

    Ratios and means are None where there is nothing to divide by. ``violation_ratio``: 0 to 1, of all queries whose end
    is known; answers after the SLO, refusals, failures and queries that could not even be sent are violations.
    ``effective_accuracy``: percent, mean of the variants' accuracies over answers in time.
    """
    violations = found["late"] + found["refused"] + found["failed"] + found["unsent"]

    def ratio(part: float, whole: int, digits: int = 2) -> float | None:
        return round(part / whole, digits) if whole else None

    return {
        **{name: found[name] for name in ("sent", "in_time", "late", "refused", "failed", "unsent", "abandoned")},
        "violation_ratio": ratio(violations, found["in_time"] + violations, 5),
        "effective_accuracy": ratio(found["accuracy"], found["in_time"]),
        "variants": {name[8:]: count for name, count in sorted(found.items()) if name[:8] == "variant " and count},
    }


def latencies(records: Records) -> dict[str, float | None]:
    """Percentiles over answers; ``lag``: from a query's due time to its sending."""
    took_ms = records.took_s[records.answered] * 1e3
    values = {
        "latency_p50_ms": quantile(took_ms, 0.5),
        "latency_p99_ms": quantile(took_ms, 0.99),
        "lag_p99_ms": records.lateness_ms(0.99),
    }
    return {name: None if math.isnan(value) else round(value, 1) for name, value in values.items()}


def wait_ready(url: str, authorities: Path | None = None) -> None:
    trust = ssl.create_default_context(cafile=authorities) if url.startswith("https") else False
    with httpx2.Client(base_url=url, timeout=5, verify=trust, trust_env=False) as gateway:
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if gateway.get("/v2/health/ready").status_code == httpx2.codes.OK:
                    return
            time.sleep(POLL_S)
