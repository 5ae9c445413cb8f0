"""A query at its edge, from the bytes of its request to those of its answer.

1. Its head was admitted: the key exists and reaches the application, and the size is one that the application takes.
2. :meth:`Edge.infer` gets its bytes once all have arrived.
3. They become tensors by the application's signature, mostly as those of an earlier query like it.
4. What would hold up the event loop is parsed by another process, in turns with other keys' requests.
5. The client's deadline shortens its time, which runs from its arrival.
6. The front checks the key's limits, counts it as in flight, and submits it to the core (:mod:`.core`).
7. The front gets its outcome (:meth:`.Front.deliver`, :meth:`.Front.finish`), and hands it to :meth:`Edge.answered`.
8. An answer fills the template of answers like it, an error gets its status, and the protocol sends it.
9. A client that leaves before withdraws it (:meth:`Edge.withdraw`).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any

from workers import log
from workers.protocol.frames import Buffer
from workers.protocol.specs import ApplicationSpec
from workers.v2.grpc_template import GrpcTemplate
from workers.v2.http_template import HttpTemplate
from workers.v2.query import NotSendable, V2Error, V2Query

from .body_sizes import BodySizes
from .errors import GatewayError, Invalid, ModelFailed, Unrenderable
from .front import Front
from .in_flight import STAGES, Answer, InFlightQuery, Outcome
from .metadata import Metadata
from .metrics import GatewayMetrics
from .parser_process import Parsed, ParseOrder
from .parsing import Parse, Parsing

logger = log.get("gateway.edge")

#: seconds taken off a client's deadline for the response's way back
RETURN_S = 0.002
#: share of the deadline by which clients round it up: gRPC's own send three digits
ROUNDED = 0.01
#: most of the deadline that both take together
MOST_OFF = 0.05
#: templates of one edge
MAX_TEMPLATES = 1024

#: an application, and the only variant that may answer (None: any)
Target = tuple[ApplicationSpec, str | None]
#: a query that waits: in the core, or for its turn at the parser process
Waiting = InFlightQuery | Parse


class Edge(ABC):
    """One protocol's queries.

    A *reply* is the protocol's object by which a request is answered.

    Attributes:
        template: of the protocol's responses.
    """

    template: type[HttpTemplate | GrpcTemplate]

    def __init__(
        self, front: Front, metadata: Metadata, metrics: GatewayMetrics, sizes: BodySizes, parsing: Parsing
    ) -> None:
        self._front = front
        self._metadata = metadata
        self._metrics = metrics
        self._sizes = sizes
        self._parsing = parsing
        self._templates: dict[tuple, HttpTemplate | GrpcTemplate | None] = {}

    # --- of the protocol ----------------------------------------------------------------------------------------------

    @abstractmethod
    def parse(self, reply: Any, data: Buffer, encoding: bytes, client: str) -> tuple[V2Query, Target] | ParseOrder:
        """Parse a request, or return an order to parse it in another process. Raises GatewayError and V2Error."""

    @abstractmethod
    def render(self, flight: InFlightQuery, answer: Answer) -> Any:
        """A response without a template. Raises V2Error."""

    @abstractmethod
    def respond(self, reply: Any, response: Any) -> GatewayError | None:
        """Send a filled template, or what :meth:`render` returned; the error that was sent instead, if any."""

    @abstractmethod
    def refuse(self, reply: Any, error: GatewayError) -> None:
        """Count and send the error of a request that was not submitted."""

    @abstractmethod
    def fail(self, reply: Any, error: GatewayError) -> None:
        """Send the error of a query that was submitted, which the front counts."""

    # --- the story ----------------------------------------------------------------------------------------------------

    def infer(
        self, reply: Any, data: Buffer, encoding: bytes, client: str, read_at: float, left_s: float | None = None
    ) -> Waiting:
        """Have a query answered, perhaps before this returns.

        Args:
            encoding: how the request's bytes are compressed.
            client: hash of its API key.
            read_at: ``time.monotonic()`` when they were all there.
            left_s: seconds until the client's deadline; None: it has none.

        Raises:
            GatewayError: it is refused.
        """
        try:
            parsed = self.parse(reply, data, encoding, client)
        except V2Error as error:
            raise Invalid(str(error)) from None
        if isinstance(parsed, ParseOrder):
            parse = Parse(client, parsed, functools.partial(self._parsed, reply, read_at, left_s))
            self._parsing.submit(parse)
            return parse

        query, (spec, variant) = parsed
        if left_s is not None:
            _limit_time(query, left_s)
        return self._front.submit(spec, query, variant, read_at, self.answered, reply, client)

    def _parsed(
        self, reply: Any, read_at: float, left_s: float | None, parse: Parse, outcome: Parsed | GatewayError
    ) -> None:
        try:
            if isinstance(outcome, GatewayError):
                raise outcome
            # The configuration may have been replaced meanwhile.
            self._front.catalog.check_client(parse.client)
            spec, variant = self._front.resolve(outcome.application, outcome.version, parse.client)
            query = outcome.query
            if left_s is not None:
                _limit_time(query, left_s)
            flight = self._front.submit(spec, query, variant, read_at, self.answered, reply, parse.client)
            # A reply that was sent by now holds the query no longer.
            parse.flight = flight if flight.answer is not None else None
        except GatewayError as error:
            self.refuse(reply, error)
        except Exception:
            logger.exception("query_failed")
            self.refuse(reply, ModelFailed("internal error"))

    def answered(self, flight: InFlightQuery, outcome: Outcome) -> GatewayError | None:
        """Send a query's answer or error.

        Most queries of a batch are alike, and hashing a template's key costs more than filling it.

        Returns:
            The error that the client got instead of the answer, which cannot be rendered.
        """
        reply = flight.context
        if isinstance(outcome, GatewayError):
            self.fail(reply, outcome)
            return None
        run, terms, headers = outcome.run, flight.query.terms, outcome.headers
        try:
            rendered = run.rendered
            if rendered is None or rendered[0] is not terms or rendered[1] is not headers:
                template = self._template(flight, outcome)
                batch = b"" if template is None else template.fill_batch(run.stages_ms())
                rendered = run.rendered = terms, headers, template, batch
            _, _, template, batch = rendered
            if template is not None:
                response = template.fill(flight.query.id, outcome.queue_ms, batch, outcome.parts)
            else:
                response = self.render(flight, outcome)
        except Exception as error:
            refusal = _unrenderable(flight, error)
            self.fail(reply, refusal)
            return refusal
        return self.respond(reply, response)

    def withdraw(self, waiting: Waiting | None) -> None:
        if isinstance(waiting, Parse):
            waiting.cancel()
            waiting = waiting.flight
        if waiting is not None:
            self._front.withdraw(waiting)

    def _template(self, flight: InFlightQuery, answer: Answer) -> HttpTemplate | GrpcTemplate | None:
        run, terms, headers = answer.run, flight.query.terms, answer.headers
        key = terms, headers, run.variant, run.accuracy, run.device, run.rows
        if key not in self._templates:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            self._templates[key] = (
                self.template(terms, flight.spec.name, run.variant, answer.parameters(), STAGES, headers)
                if self.template.fits(terms, headers)
                else None
            )
        return self._templates[key]


def _limit_time(query: V2Query, left_s: float) -> None:
    left_s -= min(RETURN_S + ROUNDED * left_s, MOST_OFF * left_s)
    if query.latency_s is None or left_s < query.latency_s:
        query.latency_s = left_s


def _unrenderable(flight: InFlightQuery, error: Exception) -> GatewayError:
    if isinstance(error, NotSendable):
        return Unrenderable(str(error))
    if isinstance(error, V2Error):
        return ModelFailed(str(error))
    logger.error("response_failed", application=flight.spec.name, exc_info=error)
    return ModelFailed("internal error: the response could not be rendered")
