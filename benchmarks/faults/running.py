"""Carries out rows: load on, fault, mending, and what the history says afterwards."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import ClientProcess

from . import history
from .checker import NEVER, Violation, check, queries_of
from .figures import Cost, costs
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


@dataclass(frozen=True)
class Result:
    """A row that was carried out.

    Attributes:
        skipped: why it could not be; empty: it was.
        costs: by application.
        served_s, back_s: seconds until all was served, until the row's part was back; None: never.
        violations: of the checker.
        wrong: what the row's last look found.
    """

    row: Row
    skipped: str = ""
    costs: dict[str, Cost] = field(default_factory=dict)
    served_s: float | None = None
    back_s: float | None = None
    violations: Sequence[Violation] = ()
    wrong: str = ""

    @property
    def lost_s(self) -> float:
        return max((cost.lost_s for cost in self.costs.values()), default=0.0)

    def misses(self) -> list[str]:
        expected, found = self.row.expected, []
        if expected.lost_s is not None and self.lost_s > expected.lost_s:
            found.append(f"lost {self.lost_s:.1f} s")
        if expected.served_s is not None and (self.served_s is None or self.served_s > expected.served_s):
            found.append("not served again" if self.served_s is None else f"served after {self.served_s:.1f} s")
        if expected.back_s is not None and (self.back_s is None or self.back_s > expected.back_s):
            found.append("not back" if self.back_s is None else f"back after {self.back_s:.1f} s")
        return found + ([self.wrong] if self.wrong else [])

    @property
    def holds(self) -> bool:
        return not self.skipped and not self.violations and not self.misses()


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
    most_s = max(60.0, 2 * (row.expected.back_s or 0.0))
    with Observer(site) as observer, ClientProcess("benchmarks.faults.clients", work) as clients:
        load = _Load(clients)
        if wait(load.served, SERVED_MOST_S) is None:
            raise RuntimeError(f"{row.name}: the load is not served before the fault")
        observer.mark("start")
        time.sleep(BEFORE_S)
        with contextlib.ExitStack() as stack:
            fault_at = observer.mark("fault")
            stack.enter_context(row.fault(site))
            took = _wait_back(row, site, most_s) if row.from_start else None
            time.sleep(max(0.0, fault_at + row.seconds - time.monotonic()))
            if not row.lasting:
                stack.close()
            healed_at = observer.mark("healed")
            took = took if row.from_start else _wait_back(row, site, most_s)
            if not row.for_good:
                wait(lambda: load.served(healed_at), SERVED_MOST_S)
            time.sleep(AFTER_S)
            wrong = _look(row, site)
            end = observer.mark("back")
            clients.stop()
    events = sorted([*observer.events, *history.read(clients_file)], key=_moment)
    history.write(folder / f"{row.name}.jsonl", events)
    clients_file.unlink()
    since = fault_at if row.from_start else healed_at
    queries = queries_of(events)
    cut, unstored = (fault_at, end) if row.cuts else NEVER, (fault_at, healed_at) if row.unstored else NEVER
    by_application = costs(queries, site.slo_s, fault_at, end)
    served = [cost.back_s for cost in costs(queries, site.slo_s, since, end).values()]
    return Result(
        row,
        costs=by_application,
        served_s=None if None in served or not served else max(served),
        back_s=took,
        violations=check(events, *cut, unstored=unstored),
        wrong=wrong,
    )


def _wait_back(row: Row, site: Site, most_s: float) -> float | None:
    return wait(row.back(site), most_s) if row.back is not None else 0.0


def _look(row: Row, site: Site) -> str:
    if row.afterwards is None:
        return ""
    try:
        return row.afterwards(site)
    except Exception as error:
        return f"could not look afterwards: {error!r}"


def _moment(event: Event) -> float:
    return getattr(event, "at", 0.0)


def results(rows: Iterable[Row], folder: Path) -> Iterator[Result]:
    """Yield results as they come.

    Rows of one kind of site follow each other on one site while it is well.
    """
    kinds: dict[type[Site], list[Row]] = {}
    for row in rows:
        kinds.setdefault(row.site, []).append(row)
    for kind, of in kinds.items():
        site: Site | None = None
        try:
            for number, row in enumerate(of):
                try:
                    site = site or _opened(kind)
                    result = carry_out(row, site, folder, number)
                    _keep_log(site, folder / f"{row.name}.log", result.holds)
                    yield result
                except Skipped as why:
                    yield Result(row, skipped=str(why))
                except Exception as error:
                    _keep_log(site, folder / f"{row.name}.log", holds=False)
                    yield Result(row, wrong=f"could not be carried out: {error!r}")
                    site = _closed(site)
                if site is not None and (row.lasting or row.for_good or not _well(site)):
                    site = _closed(site)
        finally:
            _closed(site)


def _keep_log(site: Site | None, path: Path, holds: bool) -> None:
    if site is not None and not holds:
        path.write_text(site.box.read() + site.box.log()[-LOG_BYTES:])


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
