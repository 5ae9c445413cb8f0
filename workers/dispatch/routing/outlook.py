"""What is known of a device's queues, and when it should answer. Pure; seconds on the caller's clock, counts in rows.

When a query is answered is, as far as is known, the later of two: a moment, and a time from now. A device that works
through its queue is done with it at a moment that does not change while nothing new is heard; an idle one takes the
same time whenever it is asked. So an outlook holds until the next event, and is compared without being computed again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from workers.batching.latency import LatencyModel

Outlook = tuple[float, float]
"""``(at, takes)``: a query that is sent at ``now`` is answered at ``max(at, now + takes)``."""


class Lane:
    """One application's queue on one device, as known here."""

    __slots__ = ("_latency", "batch_s", "full_s", "max_batch", "others", "outstanding")

    def __init__(self) -> None:
        self.outstanding = 0
        #: rows of other gateways, as last reported
        self.others = 0
        self.max_batch = 0
        self.full_s = 0.0
        self._latency: LatencyModel | None = None
        #: seconds by rows, up to ``max_batch``
        self.batch_s: list[float] = [0.0]

    def serve(self, latency: LatencyModel, max_batch: int) -> None:
        self.max_batch = max_batch
        # Not less for more rows, though it was measured so: fewer rows must never seem to take longer.
        self.batch_s = [latency.ceiling(rows) for rows in range(max_batch + 1)]
        self.full_s = self.batch_s[max_batch]
        self._latency = latency

    def expected_s(self, batch_rows: int) -> float:
        """Seconds that a batch of so many rows should take; 0 when unknown."""
        return self._latency.seconds(batch_rows) if self._latency is not None else 0.0

    def work_s(self, rows: int) -> float:
        """Seconds of device time for ``rows`` rows, in full batches and a rest."""
        most = self.max_batch
        if rows <= most:
            return self.batch_s[rows]
        return rows // most * self.full_s + self.batch_s[rows % most] if most else 0.0


class Watcher(Protocol):
    """Whoever compares outlooks."""

    def may_be_sooner(self) -> None:
        """Something happened to the device."""

    def only_later(self) -> None:
        """Something happened to the device that does not make any answer earlier."""


class Device:
    """One device, as known here.

    Attributes:
        usable: up and not draining.
        busy_until: when the batch that ran at the last report should end.
        progressed_at: of the last answer, or of the first query after a time with none.
        reported_at: of the last report.
        slowness: observed over planned batch times.
        watchers: those who want to hear of events here.
    """

    __slots__ = (
        "busy_until",
        "draining",
        "lanes",
        "others",
        "progressed_at",
        "reported_at",
        "slowness",
        "up",
        "usable",
        "watchers",
    )

    SLOWNESS_WEIGHT = 0.1
    """How much each batch counts in the moving average of observed over planned batch time."""
    SLOWNESS_RANGE = (0.25, 4.0)

    def __init__(self) -> None:
        self.up = False
        self.draining = False
        self.usable = False
        self.busy_until = -math.inf
        self.progressed_at = -math.inf
        self.reported_at = -math.inf
        self.slowness = 1.0
        self.lanes: dict[str, Lane] = {}
        self.others = False
        self.watchers: list[Watcher] = []

    def lane(self, application: str) -> Lane:
        """That of an application; made where there is none."""
        lane = self.lanes.get(application)
        if lane is None:
            lane = self.lanes[application] = Lane()
        return lane

    def happened(self) -> None:
        """To be called after every change that this class has no method for: tells the watchers."""
        for watcher in self.watchers:
            watcher.may_be_sooner()

    def sent(self, application: str, rows: int, now: float) -> None:
        """Rows are under way to here."""
        lane = self.lane(application)
        before, most = lane.outstanding, lane.max_batch
        if not before:
            self.progressed_at = now
        lane.outstanding = before + rows
        if before < most <= lane.outstanding:
            # It is certain now that a batch is running, which may have gone on for some time.
            self.happened()
        else:
            for watcher in self.watchers:
                watcher.only_later()

    def done(self, application: str, rows: int, now: float, served: bool, run_s: float, batch_rows: int) -> None:
        """Rows are answered, as part of a batch of ``batch_rows`` rows that took ``run_s``, or given up."""
        lane = self.lane(application)
        lane.outstanding = max(0, lane.outstanding - rows)
        if served:
            # The queries of one batch come back together: only the first of them says something new.
            if now != self.progressed_at and run_s > 0 and batch_rows > 0 and (expected := lane.expected_s(batch_rows)):
                slowness = self.slowness + self.SLOWNESS_WEIGHT * (run_s / expected - self.slowness)
                low, high = self.SLOWNESS_RANGE
                self.slowness = min(max(slowness, low), high)
            self.progressed_at = now
        self.happened()

    def serve(self, application: str, latency: LatencyModel, max_batch: int) -> None:
        """What the plan says of a service."""
        self.lane(application).serve(latency, max_batch)
        self.happened()

    def reported(self, queued: Mapping[str, int], busy_s: float, now: float) -> None:
        """An executor's report: rows that wait, of all gateways, and the time left of the running batch.

        Raises:
            ValueError: ``busy_s`` is no finite time; the report changes nothing then.
        """
        # One that compares with nothing would put the other devices out of order, too.
        if not -math.inf < busy_s < math.inf:
            raise ValueError(f"busy_s: must be a finite time, not {busy_s}")
        self.busy_until = now + busy_s
        self.reported_at = now
        for application, rows in queued.items():
            if application not in self.lanes and rows > 0:
                self.lane(application)
        self.others = False
        for application, lane in self.lanes.items():
            # Some of this gateway's rows may be running, not waiting: what is taken for others' is the least it can be.
            lane.others = max(0, queued.get(application, 0) - lane.outstanding)
            if lane.others:
                self.others = True
        self.happened()

    def forget_reports(self) -> None:
        """Nothing is known any more but what was sent."""
        self.busy_until = self.progressed_at = self.reported_at = -math.inf
        self.slowness = 1.0
        self.others = False
        for lane in self.lanes.values():
            lane.others = 0
        self.happened()

    def outlook(self, application: str, rows: int) -> Outlook:
        """When a query of ``rows`` rows would be answered, if the device works without pause. Never earlier for more
        rows.

        The rows ahead of it and its own take full batches and a rest. Each other application on the device gets as
        many turns as these need, or what it has waiting if that is less. Of that is done what fits into the time since
        the device last answered, as far as a full batch must be running, and of other gateways' rows what fits into the
        time since they were reported; both together not more than the time that went by. At the earliest it is answered
        when the running batch, as reported, has ended and the query has run alone.
        """
        busy_until, slowness = self.busy_until, self.slowness
        lane = self.lanes.get(application)
        if lane is None or not lane.max_batch:
            return busy_until, 0.0
        ahead = lane.outstanding
        work = own = lane.work_s(ahead + rows)
        running = lane.full_s if ahead >= lane.max_batch else 0.0
        if len(self.lanes) > 1:
            turns = -(-(ahead + rows) // lane.max_batch)
            for other in self.lanes.values():
                if other is lane or not other.outstanding:
                    continue
                work += min(other.work_s(other.outstanding), turns * other.full_s)
                if other.outstanding >= other.max_batch > 0 and other.full_s > running:
                    running = other.full_s
        work *= slowness
        alone = slowness * (lane.work_s(rows) if ahead else own)
        at, takes = busy_until + alone, alone
        if running:
            running *= slowness
            # A full batch never waits on purpose, so some batch has been running since the last answer.
            if self.progressed_at + work > at:
                at = self.progressed_at + work
            if work - running > takes:
                takes = work - running
        elif work > takes:
            takes = work
        if self.others:
            work, theirs = self._with_others(lane, ahead + rows)
            since = self.reported_at
            if running:
                progressed = self.progressed_at
                since = max(min(since, progressed), since - running, progressed - theirs)
            if since + work > at:
                at = since + work
            if work - theirs - running > takes:
                takes = work - theirs - running
        return at, takes

    def _with_others(self, lane: Lane, count: int) -> tuple[float, float]:
        """Seconds of work up to the ``count``-th row of a lane, other gateways' rows included, and those of the latter
        alone."""
        count += lane.others
        work, theirs = lane.work_s(count), lane.work_s(lane.others)
        if len(self.lanes) > 1:
            turns = -(-count // lane.max_batch)
            for other in self.lanes.values():
                if other is lane:
                    continue
                most = turns * other.full_s
                both = min(other.work_s(other.outstanding + other.others), most)
                work += both
                theirs += both - min(other.work_s(other.outstanding), most)
        return work * self.slowness, theirs * self.slowness
