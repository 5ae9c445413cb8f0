"""One thing that needs a person."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.urls import reverse

from registry.access import table
from registry.access.roles import AccessRole


class Severity(enum.StrEnum):
    """The urgency of a repair.

    ``error``: something does not work now. ``warning``: it works, and will not unless somebody acts.
    """

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Action:
    """One sentence, and a button where an address of the REST API does it.

    Attributes:
        label: the button's text; empty: none.
        address: name of the address, as in the access table.
        confirm: what the button asks first; empty: nothing.
    """

    text: str
    label: str = ""
    method: str = "POST"
    address: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    confirm: str = ""

    @property
    def url(self) -> str:
        return reverse(self.address, kwargs=dict(self.arguments)) if self.address else ""

    def permitted(self, role: AccessRole) -> bool:
        return bool(self.address) and table.permits(role, self.address, self.method)


@dataclass(frozen=True)
class Repair:
    """Something that needs a person, as :class:`scheduler.api.repairs.RepairSerializer` describes it.

    Attributes:
        since: None until :mod:`.known` fills in when it was first seen.
        lasting_s: seconds for which it must have been seen before it is shown.
        shown_to: name of an address; who may not read that does not see the repair.
    """

    key: str
    severity: Severity
    title: str
    effect: str
    action: Action
    since: datetime | None = None
    at_least: bool = False
    lasting_s: float = 0.0
    application: str = ""
    shown_to: str = "repairs"
    ignorable: bool = True
    ignored_by: str = ""

    @property
    def kind(self) -> str:
        return self.key.partition(":")[0]

    @property
    def anchor(self) -> str:
        return f"repair-{hashlib.sha256(self.key.encode()).hexdigest()[:12]}"

    @property
    def fingerprint(self) -> str:
        """Another one once the repair changes so that who ignores it should look again."""
        began = "" if self.since is None or self.at_least else self.since.isoformat()
        return hashlib.sha256("\n".join((self.key, self.severity, self.title, began)).encode()).hexdigest()[:32]

    def visible(self, role: AccessRole) -> bool:
        return table.permits(role, self.shown_to, "GET")
