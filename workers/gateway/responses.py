"""Rendering results: responses of equal terms, outputs and runs share a template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workers import log
from workers.v2.grpc_template import GrpcTemplate
from workers.v2.http_template import HttpTemplate
from workers.v2.query import NotSendable, V2Error

from .errors import ModelFailed, Unrenderable
from .in_flight import STAGES, Answer, InFlightQuery

logger = log.get("gateway.responses")

#: templates of one edge
MAX_TEMPLATES = 1024


class Responses:
    """Responses of one edge.

    Args:
        template: the protocol's.
        render: renders a result without a template.
    """

    def __init__(
        self, template: type[HttpTemplate | GrpcTemplate], render: Callable[[InFlightQuery, Answer], Any]
    ) -> None:
        self._template = template
        self._render = render
        self._known: dict[tuple, HttpTemplate | GrpcTemplate | None] = {}

    def response(self, flight: InFlightQuery, answer: Answer, filled: bool = True) -> Any:
        """Return the response to a query.

        It is a filled template if there is one for the result, otherwise what ``render`` returns.

        Args:
            filled: False: never a filled template.

        Raises:
            Unrenderable: an output has no JSON form.
            ModelFailed: it cannot be rendered.
        """
        try:
            if filled:
                terms, headers, rendered = flight.query.terms, answer.headers, answer.run.rendered
                # Most queries of a batch are alike, and hashing the template's key costs more than filling it.
                if rendered is None or rendered[0] is not terms or rendered[1] is not headers:
                    template = self._of(flight, answer)
                    batch = b"" if template is None else template.fill_batch(answer.run.stages_ms)
                    rendered = answer.run.rendered = terms, headers, template, batch
                template = rendered[2]
                if template is not None:
                    return template.fill(flight.query.id, answer.queue_ms, rendered[3], answer.parts)
            return self._render(flight, answer)
        except NotSendable as error:
            raise Unrenderable(str(error)) from None
        except V2Error as error:
            raise ModelFailed(str(error)) from None
        except Exception:
            logger.exception("response_failed", application=flight.spec.name)
            raise ModelFailed("internal error: the response could not be rendered") from None

    def _of(self, flight: InFlightQuery, answer: Answer) -> HttpTemplate | GrpcTemplate | None:
        run, terms, headers = answer.run, flight.query.terms, answer.headers
        key = terms, headers, run.variant, run.accuracy, run.device, run.rows
        if key not in self._known:
            if len(self._known) >= MAX_TEMPLATES:
                self._known.clear()
            self._known[key] = (
                self._template(terms, flight.spec.name, run.variant, answer.parameters(), STAGES, headers)
                if self._template.fits(terms, headers)
                else None
            )
        return self._known[key]
