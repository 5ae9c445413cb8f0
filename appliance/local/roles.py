"""Roles of a box: which of the appliance's processes it runs."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from workers.addresses import Address
from workers.settings import Settings


class BoxRole(StrEnum):
    """A part of the appliance that a box may run by itself."""

    CONTROL = "control"
    """Web, Celery, planning, simulation and Redis."""
    GATEWAY = "gateway"
    """Fronts and a core."""
    NODE = "node"
    """The node daemon and its executors."""


Roles = frozenset[BoxRole]
ALL: Roles = frozenset(BoxRole)


def parse(text: str) -> Roles:
    """Roles as an operator writes them, comma separated. Raises ValueError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if word not in set(BoxRole)]
    if wrong or not words:
        said = f"{', '.join(wrong)}: no such role" if wrong else "no role"
        raise ValueError(f"{said}; roles are {', '.join(BoxRole)}, comma separated")
    return frozenset(map(BoxRole, words))


def named(roles: Collection[BoxRole]) -> str:
    """Roles for an operator, in their order: ``control and node``."""
    *first, last = (role.value for role in BoxRole if role in roles)
    return f"{', '.join(first)} and {last}" if first else last


def serves_tls(values: Settings, roles: Collection[BoxRole]) -> bool:
    addresses = [values.console] if BoxRole.CONTROL in roles else []
    if BoxRole.GATEWAY in roles:
        addresses += [values.http, values.grpc]
    return any(address.tls for address in addresses)


def listening(values: Settings, roles: Collection[BoxRole], devices: int) -> list[tuple[str, Address]]:
    """Addresses at which these roles listen, by setting's name without NEREUS_."""
    found: list[tuple[str, Address | None]] = []
    if BoxRole.CONTROL in roles:
        found.append(("CONSOLE", values.console))
    if BoxRole.GATEWAY in roles:
        found += [("HTTP", values.http), ("GRPC", values.grpc), ("CORE", values.core)]
    if BoxRole.NODE in roles:
        found.append(("NODE_HTTP", values.node_http))
        if (first := values.executors) is not None:
            found += [("EXECUTORS", Address(first.host, first.port + number)) for number in range(devices)]
    return [(name, address) for name, address in found if address is not None]
