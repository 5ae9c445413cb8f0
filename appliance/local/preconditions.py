"""Conditions of a start: one appliance a home, free ports, devices that exist."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from workers import topology
from workers.addresses import Address
from workers.environ import SettingsError
from workers.node import devices, division
from workers.settings import Settings, executor_port_problems

from . import roles as box_roles
from .guard import GRACE_S
from .roles import BoxRole, Roles

#: a module by which one sees that a role's packages are there
_MODULES = {BoxRole.CONTROL: "django", BoxRole.GATEWAY: "hpack", BoxRole.NODE: "onnxruntime"}
#: seconds that the guard of a killed supervisor may take until the last of its processes is gone
LEFTOVERS_S = GRACE_S + 1.0


class StartError(Exception):
    """The appliance cannot start; the text says why and what to do."""


def check_packages(roles: Roles) -> None:
    """By one package of each role that no other needs. Raises StartError."""
    lacking = [role.value for role, module in _MODULES.items() if role in roles and find_spec(module) is None]
    if lacking:
        wanted = ",".join(role.value for role in BoxRole if role in roles)
        raise StartError(
            f"The packages of {' and '.join(lacking)} are not installed: install the extras of the box's roles "
            f"(pip install '.[{wanted}]' or uv tool install --force '.[{wanted}]' in the checkout), or start only "
            "the roles that it has the packages of (up --only ROLE)"
        )


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """Lock the home for as long as this process lives, or the block lasts. Raises StartError."""
    path = home / "lock"
    try:
        file = path.open("a+b", buffering=0)
    except OSError as error:
        raise StartError(f"{path}: cannot be opened: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StartError(
                f"another appliance (process {file.read().decode().strip() or 'unknown'}) runs in {home}; stop it, or "
                "set NEREUS_HOME to another folder; roles that share a home run in one process, by manage.py up --only "
                "ROLE,ROLE"
            ) from None
        # The number is for the message above alone; a full disk must not keep the appliance from serving.
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.write(b"%d" % os.getpid())
        yield


def check_ports(values: Settings, patience_s: float = 0.0, roles: Roles = box_roles.ALL) -> None:
    """Check that nothing else listens on the ports of this box's roles.

    Raises SettingsError: two are the same; StartError: still something after ``patience_s`` seconds.
    """
    count = 0
    if BoxRole.NODE in roles and values.executors is not None:
        count = devices.expected(values)
    wanted = box_roles.listening(values, roles, count)
    if count:
        others = {address.port: name for name, address in wanted if name != "EXECUTORS"}
        if problems := executor_port_problems(values.executors, count, others):
            raise SettingsError(problems)
    deadline = time.monotonic() + patience_s
    while True:
        taken = [
            f"NEREUS_{name}={address}: another program listens there; set NEREUS_{name} to a free address"
            for name, address in wanted
            if _taken(address)
        ]
        if not taken:
            return
        if time.monotonic() >= deadline:
            raise StartError("\n".join(taken))
        time.sleep(0.1)


def _taken(address: Address) -> bool:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError:
            return True
    return False


def cpu_devices(values: Settings, roles: Roles, demo: bool) -> tuple[str, str]:
    """Return this box's ``NEREUS_CPU_DEVICES``, and a line on it for the operator.

    The line is empty where there is nothing to say. The demo has two one-core devices, or one on a box with a single
    usable core, whatever else there is.
    """
    if values.cpu_devices != "auto" or BoxRole.NODE not in roles:
        return values.cpu_devices, ""
    box = topology.read()
    if demo and "NEREUS_CPU_DEVICES" not in os.environ:
        return ("2x1" if len(box.usable) > 1 else "1x1"), ""
    others = roles & {BoxRole.CONTROL, BoxRole.GATEWAY}
    found = division.divide(box, keep=bool(others))
    line = division.summary(found, box_roles.named(others) if others else "")
    return ";".join(map(devices.ranges, found.devices)), line


def check_devices(values: Settings) -> None:
    """Check that the node can make devices as its settings ask.

    An operator should read that now and not in the node's log. Raises SettingsError.
    """
    if "NEREUS_CPU_DEVICES" in os.environ:
        devices.find(values)
