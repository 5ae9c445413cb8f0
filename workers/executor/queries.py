"""A waiting query, the checks that a submitted one must pass, and what is kept of one that is refused."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from workers.protocol.frames import Form, FrameConnection, FrameError, Submit, split_body

from .forms import BUDGETS, Forms, Invalid, Layout

_ids = itertools.count(1)


class Ticket(NamedTuple):
    """A query of one gateway, by the gateway's number, as far as it takes to refuse it. ``deadline``: seconds on the
    event loop's clock."""

    connection: FrameConnection
    id: int
    application: str
    rows: int
    budget_s: float
    deadline: float


class Query:
    """One query that came by itself. ``id`` is this executor's own: gateways number theirs independently.

    ``arrived`` and ``deadline``: seconds on the event loop's clock. ``arrays``: inputs by name, rows first. ``form``:
    what two queries must share to stand in one batch. ``extent``: see :class:`.forms.Layout`. ``padding``: inputs that
    may be padded for that, and with what.
    ``outputs``: names wanted.
    """

    __slots__ = (
        "arrays",
        "arrived",
        "connection",
        "deadline",
        "extent",
        "form",
        "id",
        "lane",
        "outputs",
        "padding",
        "rows",
        "submit",
    )

    def __init__(
        self,
        submit: Submit,
        connection: FrameConnection,
        layout: Layout,
        arrays: dict[str, np.ndarray],
        padding: dict[str, float],
        now: float,
    ):
        self.id = next(_ids)
        self.arrived = now
        self.deadline = now + submit.budget_s
        self.rows = submit.rows
        self.submit = submit
        self.connection = connection
        self.arrays = arrays
        self.form = layout.key
        self.extent = layout.extent
        self.padding = padding
        self.outputs = layout.outputs
        #: the lane that it waits in; kept by lanes, which know queries and not the other way round
        self.lane: Any = None

    def ticket(self) -> Ticket:
        submit = self.submit
        return Ticket(self.connection, submit.id, submit.application, self.rows, submit.budget_s, self.deadline)


def read(submit: Submit, body: memoryview, forms: Forms, connection: FrameConnection, now: float) -> Query:
    """The query that came at ``now``.

    Raises:
        Invalid: naming the field and what it must be.
    """
    check_budget(submit.budget_s)
    try:
        layout = forms.layout(Form(submit.rows, submit.inputs, submit.outputs))
    except Invalid:
        # Where the body does not add up, nothing that its headers say is worth telling.
        _check_size(submit, body)
        raise
    if layout.nbytes != len(body):
        _check_size(submit, body)
    return Query(submit, connection, layout, layout.arrays(body, layout.starts), forms.padding, now)


def check_budget(budget_s: float) -> None:
    """
    Raises:
        Invalid: it is out of range or no number.
    """
    if not BUDGETS[0] <= budget_s <= BUDGETS[1]:
        raise Invalid(f"budget_s: must be from {BUDGETS[0]:.0f} to {BUDGETS[1]:.0f}, not {budget_s}")


def _check_size(submit: Submit, body: memoryview) -> None:
    try:
        split_body(submit.inputs, body)
    except FrameError as error:
        raise Invalid(f"inputs: {error}") from None
