"""What gateways send: queries and granted batches are checked, queued, or refused; and what waits is kept count of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from workers.protocol.frames import FrameConnection, RawGrant, Refusal, Submit

from .forms import Forms, Invalid
from .granted import Granted, admit, waits_already
from .lanes import Lanes
from .loaded import Loaded
from .meters import Meters
from .peers import Peers
from .queries import Query, Ticket, read
from .stats import Second


class Intake:
    """Queues queries in ``lanes``. Each one is answered once: here, where it is refused, or by whoever runs it.

    Args:
        queue_rows: rows that may wait.
        forms: by name, those of each application that is on this device now.
        wake: called when something else may have to be decided.
        at_once: called with a granted batch where nothing else waits; False: it has to be queued all the same.
    """

    def __init__(
        self,
        lanes: Lanes,
        peers: Peers,
        meters: Meters,
        second: Second,
        queue_rows: int,
        clock: Callable[[], float],
        forms: Mapping[str, Forms],
        wake: Callable[[], None],
        at_once: Callable[[Granted, Loaded], bool],
    ):
        self._lanes = lanes
        self._peers = peers
        self._meters = meters
        self._second = second
        self._queue_rows = queue_rows
        self._clock = clock
        self._forms = forms
        self._wake = wake
        self._at_once = at_once
        self._waiting: dict[tuple[FrameConnection, int], Query] = {}
        self.last_arrival = -1e9
        #: why nothing new is taken; empty while it is
        self.closed = ""

    # --- in ---------------------------------------------------------------------------------------------------------

    def submit(self, connection: FrameConnection, message: Submit, body: memoryview) -> None:
        """Queue a query or refuse it."""
        now, name = self._clock(), message.application

        def refuse(code: str, text: str, retryable: bool) -> None:
            self.refuse(connection, [message.id], name, code, text, retryable)

        forms = self._forms.get(name)
        if forms is None:
            return refuse("not_resident", _unknown(name), True)
        try:
            query = read(message, body, forms, connection, now)
        except Invalid as error:
            return refuse("invalid", str(error), False)
        if self._taken(connection, [message.id]):
            return refuse("invalid", waits_already(message.id), False)
        self.last_arrival = now
        self._second.arrived(name, query.rows)
        queued = self._lanes.rows
        if self.closed:
            return refuse("draining", self.closed, True)
        # A single query larger than the bound may still wait in an empty queue.
        if queued and queued + query.rows > self._queue_rows:
            self._second.refused(name, query.rows)
            return refuse("overloaded", self._full(queued), True)
        if not self._lanes.add(query):
            return refuse("not_resident", "no warm variant here may serve this query", True)
        self._waiting[connection, message.id] = query
        self._wake()

    def grant(self, connection: FrameConnection, message: RawGrant, body: memoryview) -> None:
        """Run or queue a batch as the gateway put it together; what is wrong with one of its queries is that one's
        alone."""
        now, name = self._clock(), message.application
        forms = self._forms.get(name)
        if forms is None:
            ids = [id for id, _, _ in message.queries]
            return self.refuse(connection, ids, name, "not_resident", _unknown(name), True)
        batch, wrong = admit(message, body, forms, connection, now)
        for id, text in wrong:
            self.refuse(connection, [id], name, "invalid", text, False)
        alone = self._lanes.empty
        if not alone:
            taken = self._taken(connection, batch.ids)
            for ticket in batch.take_out([k for k, id in enumerate(batch.ids) if id in taken]):
                self.refuse(connection, [ticket.id], name, "invalid", waits_already(ticket.id), False)
        if not batch.rows:
            return
        self.last_arrival = now
        self._second.arrived(name, batch.rows)
        if self.closed:
            return self.refuse(connection, batch.ids, name, "draining", self.closed, True)
        if not alone:
            self._bound(batch)
            if not batch.rows:
                return
        loaded = self._lanes.serving(batch)
        if loaded is None:
            text = f"variant {message.variant} of {name} is not warm on this device"
            return self.refuse_all(batch.tickets(), "not_resident", text)
        if not (alone and self._at_once(batch, loaded)):
            self._lanes.grant(batch)
            self._wake()

    def _bound(self, batch: Granted) -> None:
        """Refuse those of a batch's queries that are too many beside what waits."""
        queued = self._lanes.rows
        if not queued or queued + batch.largest <= self._queue_rows:
            return
        places = [k for k, layout in enumerate(batch.layouts) if queued + layout.rows > self._queue_rows]
        out = batch.take_out(places)
        self._second.refused(batch.application, sum(ticket.rows for ticket in out))
        ids = [ticket.id for ticket in out]
        self.refuse(batch.connection, ids, batch.application, "overloaded", self._full(queued), True)

    def _taken(self, connection: FrameConnection, ids: Sequence[int]) -> set[int]:
        """Those of the numbers that queries of this gateway have which wait already."""
        taken = self._lanes.granted_ids(connection, ids)
        if self._waiting:
            taken = taken.union([id for id in ids if (connection, id) in self._waiting])
        return taken

    def _full(self, queued: int) -> str:
        return f"{queued} rows wait here already, the limit is {self._queue_rows}"

    # --- and out ----------------------------------------------------------------------------------------------------

    def started(self, queries: Iterable[Query]) -> None:
        """These run now: they cannot be cancelled any more."""
        for query in queries:
            self._waiting.pop((query.connection, query.submit.id), None)

    def cancel(self, connection: FrameConnection, id: int) -> None:
        """Forget a query that still waits; one that runs already is answered as ever."""
        query = self._waiting.pop((connection, id), None)
        if query is not None:
            self._lanes.remove(query)
        elif not self._lanes.cancel_granted(connection, id):
            return
        self._wake()

    def gone(self, connection: FrameConnection) -> None:
        """Forget everything that a closed connection waits for."""
        for key in [key for key in self._waiting if key[0] is connection]:
            self._lanes.remove(self._waiting.pop(key))
        self._lanes.forget_granted(connection)
        self._wake()

    def hand_back(self, code: str, text: str) -> None:
        """Refuse everything that waits."""
        self.refuse_all(self._lanes.clear(), code, text)

    def refuse_all(self, tickets: Iterable[Ticket], code: str, text: str) -> None:
        """Refuse queries that were taken out of their queues; retryable while they have time left."""
        now = self._clock()
        for ticket in tickets:
            self._waiting.pop((ticket.connection, ticket.id), None)
            if code == "late" and self._had_time(ticket):
                self._second.refused(ticket.application, ticket.rows)
            self.refuse(ticket.connection, [ticket.id], ticket.application, code, text, ticket.deadline > now)

    def refuse(
        self, connection: FrameConnection, ids: Sequence[int], application: str, code: str, text: str, retryable: bool
    ) -> None:
        """Tell a gateway that some queries of one application are not answered; none of them waits."""
        # What a gateway may call an application is no end of names; only those that are here become labels.
        label = application if application in self._forms else ""
        self._meters.answered(label, "", code, len(ids))
        self._peers.send_all(connection, [(Refusal(id, code, text, retryable), ()) for id in ids])

    def _had_time(self, ticket: Ticket) -> bool:
        """Whether a query came with about its application's whole SLO: one whose client wants it sooner than a plan
        promises says nothing about the plan."""
        forms = self._forms.get(ticket.application)
        return forms is None or ticket.budget_s >= 0.8 * forms.application.slo_s


def _unknown(application: str) -> str:
    return f"application {application!r} is not on this device"
