"""Carries out rows: load on, fault, mending, and what the history says afterwards."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import history
from .checker import NEVER, Query, Violation, check, merged, queries_of
from .clients import ClientProcess
from .history import Ended, Event, Tail
from .observer import Observer
from .rows import Row
from .site import Site, Skipped, wait

#: seconds of load before the fault, and after all is served again
BEFORE_S, AFTER_S = 3.0, 2.0
#: seconds in which most queries must be answered for the load to count as served, and the longest wait for it
SERVED_S, SERVED_MOST_S = 1.5, 180.0
#: seconds between rows, so that all statistics of one are counted before the next
BETWEEN_S = 2.5
#: of an appliance's log, kept where a row does not hold
LOG_BYTES = 4 << 20
#: seconds; a slot is lost if more than half of the queries sent in it got no answer
SLOT_S = 0.1
#: seconds of queries without a lost slot, after which an application is served again
STEADY_S = 1.0


# --- what a fault cost ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Figures of one application from a moment on.

    Attributes:
        sent, refused, unknown: queries; ``late``: answered after the SLO.
        lost_s: seconds in which more than half of the queries got no answer.
        back_s: seconds until no slot is lost any more; None: nothing shows that it is over.
    """

    sent: int
    refused: int
    unknown: int
    late: int
    lost_s: float
    back_s: float | None


def costs(queries: Sequence[Query], slo_s: float, start: float, end: float) -> dict[str, Cost]:
    by_application: dict[str, list[Query]] = defaultdict(list)
    for query in queries:
        if query.end.at >= start and query.sent.at <= end:
            by_application[query.sent.application].append(query)
    return {name: _cost(of, slo_s, start) for name, of in sorted(by_application.items())}


def _cost(queries: Sequence[Query], slo_s: float, start: float) -> Cost:
    slots: dict[int, list[bool]] = defaultdict(list)
    for query in queries:
        slots[int(query.sent.at / SLOT_S)].append(query.end.end == "ok")
    lost = [SLOT_S * (slot + 1) for slot, answered in slots.items() if 2 * sum(answered) < len(answered)]
    over = max(lost, default=start)
    steady = not lost or max(query.sent.at for query in queries) >= over + STEADY_S
    return Cost(
        sent=len(queries),
        refused=sum(query.end.end == "fail" for query in queries),
        unknown=sum(query.end.end == "unknown" for query in queries),
        late=sum(query.end.end == "ok" and query.took_s > slo_s for query in queries),
        lost_s=SLOT_S * len(lost),
        back_s=max(0.0, over - start) if steady else None,
    )


@dataclass(frozen=True)
class Result:
    """A row that was carried out, or why it was ``skipped``.

    Attributes:
        served_s, back_s: seconds until all was served, until the row's part was back; None: never.
        noted: what the row's last look found; ``wrong``: why the row does not hold beside its figures.
    """

    row: Row
    skipped: str = ""
    costs: dict[str, Cost] = field(default_factory=dict)
    served_s: float | None = None
    back_s: float | None = None
    violations: Sequence[Violation] = ()
    noted: str = ""
    wrong: str = ""

    @property
    def lost_s(self) -> float:
        return max((cost.lost_s for cost in self.costs.values()), default=0.0)

    def misses(self) -> list[str]:
        expected, found = self.row.expected, []
        if expected.lost_s is not None and self.lost_s > expected.lost_s:
            found.append(f"lost {self.lost_s:.1f} s")
        for name, most, took in (
            ("served", expected.served_s, self.served_s),
            ("back", expected.back_s, self.back_s),
        ):
            if most is not None and (took is None or took > most):
                found.append(f"never {name}" if took is None else f"{name} after {took:.1f} s")
        return found + ([self.wrong] if self.wrong else [])

    @property
    def holds(self) -> bool:
        return not self.skipped and not self.violations and not self.misses()


# --- rows -------------------------------------------------------------------------------------------------------------


class _Load:
    def __init__(self, clients: ClientProcess):
        self._tail = Tail(clients.file)
        self._recent: deque[tuple[float, bool]] = deque()

    def served(self, since: float = 0.0) -> bool:
        """Whether most queries that ended recently, and after ``since``, were answered."""
        least = max(since, time.monotonic() - SERVED_S)
        self._recent += [(event.at, event.end == "ok") for event in self._tail.new() if isinstance(event, Ended)]
        while self._recent and self._recent[0][0] < least:
            self._recent.popleft()
        answered = sum(ok for _, ok in self._recent)
        return answered > 10 and 2 * answered > len(self._recent)


def carry_out(row: Row, site: Site, folder: Path, seed: int = 0) -> Result:
    """Carry out one row on a site that is well.

    Its history stays in ``folder`` as ``ROW.jsonl``.

    Raises:
        Skipped: this machine cannot do it.
        RuntimeError: the site is not well.
    """
    time.sleep(BETWEEN_S)
    clients_file = folder / f"{row.name}.clients.jsonl"
    work = site.work(clients_file, seed)
    with Observer(site) as observer, ClientProcess(work) as clients:
        load = _Load(clients)
        if wait(load.served, SERVED_MOST_S) is None:
            raise RuntimeError(f"{row.name}: the load is not served before the fault")
        observer.mark("start")
        time.sleep(BEFORE_S)
        with contextlib.ExitStack() as stack:
            fault_at = observer.mark("fault")
            stack.enter_context(row.fault(site))
            took = _wait_back(row, site) if row.from_start else None
            time.sleep(max(0.0, fault_at + row.seconds - time.monotonic()))
            if not row.lasting:
                stack.close()
            healed_at = observer.mark("healed")
            took = took if row.from_start else _wait_back(row, site)
            if not row.for_good:
                wait(lambda: load.served(healed_at), SERVED_MOST_S)
            time.sleep(AFTER_S)
            end = observer.mark("back")
            clients.stop()
    events = sorted([*observer.events, *history.read(clients_file)], key=_moment)
    history.write(folder / f"{row.name}.jsonl", events)
    clients_file.unlink()
    since = fault_at if row.from_start else healed_at
    attempts = queries_of(events)
    queries = merged(attempts)
    cut, unstored = (fault_at, end) if row.cuts else NEVER, (fault_at, healed_at) if row.unstored else NEVER
    served = [cost.back_s for cost in costs(queries, site.slo_s, since, end).values()]
    holds, noted = row.afterwards(site, queries) if row.afterwards is not None else (True, "")
    return Result(
        row,
        costs=costs(queries, site.slo_s, fault_at, end),
        served_s=None if None in served else max(served, default=None),
        back_s=took,
        violations=check(events, *cut, site.gateways, unstored),
        noted=noted,
        wrong="" if holds else noted,
    )


def _wait_back(row: Row, site: Site) -> float | None:
    return wait(row.back(site), max(60.0, 2 * (row.expected.back_s or 0.0))) if row.back is not None else 0.0


def _moment(event: Event) -> float:
    return getattr(event, "at", 0.0)


def results(rows: Iterable[Row], folder: Path) -> Iterator[Result]:
    """Results as they come; rows of one kind of site follow each other on one site while it is well."""
    kinds: dict[type[Site], list[Row]] = {}
    for row in rows:
        kinds.setdefault(row.site, []).append(row)
    for kind, of in kinds.items():
        site: Site | None = None
        try:
            for number, row in enumerate(of):
                failed = False
                try:
                    site = site or _opened(kind)
                    result = carry_out(row, site, folder, number)
                except Skipped as why:
                    result = Result(row, skipped=str(why))
                except Exception as error:
                    failed, result = True, Result(row, wrong=f"could not be carried out: {error!r}")
                if site is not None and not result.holds and not result.skipped:
                    (folder / f"{row.name}.log").write_text(site.log()[-LOG_BYTES:])
                yield result
                if site is not None and (failed or row.lasting or row.for_good or not _well(site)):
                    site = _closed(site)
        finally:
            _closed(site)


def _opened(kind: type[Site]) -> Site:
    site = kind(Path(tempfile.mkdtemp(prefix="nereus-f-")))
    try:
        site.open()
    except BaseException:
        _closed(site)
        raise
    return site


def _closed(site: Site | None) -> None:
    if site is not None:
        site.close()
        shutil.rmtree(site.folder, ignore_errors=True)


def _well(site: Site) -> bool:
    return wait(lambda: site.serves() and site.newest_plan() > 0, 20) is not None
