"""Settings of every Nereus process, from ``NEREUS_*`` environment variables.

Every mistake is collected, so that one start shows an operator all of them: a variable with the prefix that nothing
reads is one, too, as it is nearly always a misspelling. It imports neither Django nor any model.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from . import disk
from . import environ as parse
from .addresses import Address, is_loopback
from .dispatch.stack import DEFAULT
from .environ import PREFIX, Reader, SettingsError, setting

#: A unix socket's path must fit into ``sockaddr_un.sun_path``, its closing NUL included.
SOCKET_PATH_LIMIT = 107
#: where the control plane's own box keeps the join token of its members, in ``home``
JOIN_TOKEN_FILE = "join_token"
#: gateway processes on one box, at most
MAX_GATEWAYS = 64
MIB = 1024 * 1024


def _host_name() -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", os.uname().nodename)[:63].lstrip("._-")
    return name or "node"


def _stack(text: str) -> str:
    if text == DEFAULT:
        return text
    # Imported where it is needed: the papers' modules take time and memory in each process.
    from .dispatch import stacks

    return parse.choice(*stacks.LIVE)(text)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def executor_port_problems(first: Address, devices: int, listening: Mapping[int, str]) -> list[str]:
    """Return a line for each port of the executors that cannot be used.

    Such a port does not exist or is another setting's.

    Args:
        first: the first port, with its address.
        devices: executors, one port each.
        listening: settings by the port that they name, without ``NEREUS_``.
    """
    last = first.port + devices - 1
    takes = f"{PREFIX}EXECUTORS={first}: takes the ports {first.port} to {last}, one per device"
    if last > 65535:
        return [f"{takes}, and 65535 is the last; choose a lower first port"]
    return [
        f"{takes}, of which {PREFIX}{name} has {port}; choose another first port"
        for port, name in sorted(listening.items())
        if first.port <= port <= last
    ]


def _check_certificate(read: Reader, values: dict[str, Any]) -> bool:
    """Whether certificate and key are given: both or neither, and not without TLS."""
    for name, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if values[name] is None and values[other] is not None:
            read.wrong(name.upper(), "set too: a certificate and its key belong together")
    given = values["tls_cert"] is not None
    if values["tls"] == "off" and (given or values["tls_key"] is not None):
        read.wrong("TLS", "auto or on where NEREUS_TLS_CERT is set")
    return given


def _check_control_plane(read: Reader, values: dict[str, Any]) -> None:
    """Require TLS beyond this box, since it carries tokens and models."""
    url = values["control_url"] = values["control_url"] or values["console"].url
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host:
        read.wrong("CONTROL_URL", "http(s)://HOST or http(s)://HOST:PORT")
    elif parts.scheme == "http" and not is_loopback(host) and values["tls"] != "off" and read.is_set("CONTROL_URL"):
        read.wrong("CONTROL_URL", "https:// unless its host is loopback, or NEREUS_TLS=off where the network encrypts")
    if values["control_fingerprint"] and not url.startswith("https://"):
        must = "empty where NEREUS_CONTROL_URL is not https://, since nothing verifies it there"
        read.wrong("CONTROL_FINGERPRINT", must)


@dataclass(frozen=True)
class Settings:
    """Every setting, parsed: seconds and bytes unless the name says otherwise."""

    home: Path = setting("HOME", ".nereus", parse.folder)
    """The folder in which the local appliance writes everything."""
    http: Address = setting("HTTP", "127.0.0.1:8000", parse.address)
    """V2 HTTP, the gateway."""
    grpc: Address = setting("GRPC", "127.0.0.1:8001", parse.address)
    """V2 gRPC, the gateway."""
    gateways: int = setting("GATEWAYS", "1", parse.whole(1, MAX_GATEWAYS))
    """Gateways on this box, which share both addresses; the first decides for all."""
    console: Address = setting("CONSOLE", "127.0.0.1:8080", parse.address)
    """Console, REST and websockets."""
    node_http: Address = setting("NODE_HTTP", "127.0.0.1:8090", parse.address)
    """The node daemon's metrics and health."""
    address: str = setting("ADDRESS", "", parse.host)
    """Host name or address under which other boxes of the cluster reach this one; empty: the local address of the link
    to the control plane."""
    core: Address | None = setting("CORE", "auto", parse.cluster_address)
    """Address at which a gateway's core listens for fronts of other boxes, with mutual TLS: ``auto`` is
    ``0.0.0.0:8002`` where this box is part of a cluster, that is where its console or its control URL is beyond
    loopback; ``off``: none."""
    executors: Address | None = setting("EXECUTORS", "auto", parse.cluster_address)
    """Address and first port where executors listen for cores of other boxes, one port per device, with mutual TLS:
    ``auto`` is ``0.0.0.0:8100`` where this box is part of a cluster; ``off``: none."""
    control_url: str = setting("CONTROL_URL", "", parse.url("http", "https"))
    """URL of the control plane for nodes and gateways; default: the console's address."""
    control_fingerprint: str = setting("CONTROL_FINGERPRINT", "", parse.fingerprint)
    """SHA-256 fingerprint of the authority behind the control plane's certificate, as ``nereus join`` prints it: a
    member fetches that authority before it sends anything, and trusts no other; empty: it trusts those of
    ``NEREUS_CA_FILE`` or the system."""
    tls: str = setting("TLS", "auto", parse.choice("auto", "on", "off"))
    """Use of TLS by gateway and console: ``auto`` beyond loopback, and everywhere with your own certificate; ``on``
    everywhere; ``off`` nowhere, for networks that are encrypted otherwise."""
    tls_cert: Path | None = setting("TLS_CERT", "", parse.file)
    """Your certificate with its chain, PEM; empty: one of the appliance's own authority, ``tls/authority.pem`` in
    ``NEREUS_HOME``. A replaced file is used within 10 s."""
    tls_key: Path | None = setting("TLS_KEY", "", parse.file)
    """The key of that certificate, PEM without a passphrase."""
    ca_file: Path | None = setting("CA_FILE", "", parse.file)
    """Authorities that outgoing connections trust instead of the system's, PEM: control plane, Redis, PostgreSQL.
    Webhooks trust them besides the system's."""
    public_url: str = setting("PUBLIC_URL", "", parse.public_url)
    """URL of the console for browsers, such as ``https://box.example.com:8443``."""
    trusted_proxies: tuple[str, ...] = setting("TRUSTED_PROXIES", "127.0.0.1,::1", parse.addresses)
    """Proxies whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` the console believes: addresses or networks, comma
    separated."""
    metrics_from: tuple[str, ...] = setting("METRICS_FROM", "127.0.0.0/8,::1", parse.addresses)
    """Addresses or networks that may read `/metrics` and all of `/health` without a key, at gateway, node and console,
    comma separated. Others get one word of `/health`."""
    webhook_networks: tuple[str, ...] = setting("WEBHOOK_NETWORKS", "", parse.addresses)
    """Addresses or networks that webhooks may reach besides public ones over https, comma separated, such as
    ``10.0.0.0/8``; http is permitted there. None by default: a webhook could be led to services that trust this box."""
    cpu_devices: str = setting("CPU_DEVICES", "auto", parse.cores)
    """Division of CPU cores into devices: ``auto`` (all usable cores, in equal devices of 1, 2, 4 or 8 that do not span
    NUMA nodes; a box with more than four cores leaves one to its control plane or gateway), ``none``, ``2x1`` or
    ``0-1;2,3``. A division that was ordered from the console has priority."""
    device_memory_share: float = setting("DEVICE_MEMORY_SHARE", "0.9", parse.number(0.1, 1.0))
    """Share of main memory that this box's CPU devices may take together; each device's part is a limit that its
    process cannot exceed."""
    gpu: bool = setting("GPU", "1", parse.flag)
    """Whether GPUs become devices."""
    node_name: str = setting("NODE_NAME", _host_name(), parse.name, shown="the host name")
    """This box's name; default: its host name."""
    join_token: str = setting("JOIN_TOKEN", "")
    """Admits a node or gateway."""
    database_url: str = setting("DATABASE_URL", "", parse.url("postgresql", "postgres"))
    """``postgresql://…`` with any option of libpq (``sslmode``, ``sslcert`` and ``sslkey``, for example); empty: SQLite
    in ``home``."""
    redis_url: str = setting("REDIS_URL", "", parse.url("redis", "rediss", "unix"))
    """``redis://…``, ``rediss://…`` or ``unix://…``, with user and password where it wants them; empty: the private
    Redis in ``home``."""
    redis_prefix: str = setting("REDIS_PREFIX", "nereus", parse.name)
    """First part of every key in Redis, so that several appliances can share one."""
    allowed_hosts: tuple[str, ...] = setting("ALLOWED_HOSTS", "", parse.words)
    """Host names under which the console answers (comma separated)."""
    audit_days: int = setting("AUDIT_DAYS", "400", parse.whole(1, 36_500))
    """Days for which audit entries are kept."""
    max_upload_bytes: int = setting("MAX_UPLOAD_MB", "512", parse.whole(1, 16_384, MIB))
    """Largest ONNX or validation upload."""
    blob_bytes_per_s: float = setting("BLOB_MB_S", "100", parse.number(0, 100_000, times=1e6))
    """Rate that models and validation sets on their way to nodes share, in 10^6 bytes a second; 0: no limit. The
    default leaves a fifth of a gigabit link to all else."""
    max_request_bytes: int = setting("MAX_REQUEST_MB", "80", parse.whole(1, 1024, MIB))
    """Largest query, a body or a gRPC message. An application's queries have a lower limit where its inputs have fixed
    sizes. Boxes of a cluster refuse larger frames from each other: set it alike on all."""
    max_json_bytes: int = setting("MAX_JSON_MB", "8", parse.whole(1, 1024, MIB))
    """Largest JSON part of a query; larger tensors are sent as binary data."""
    address_connections: int = setting("ADDRESS_CONNECTIONS", "1024", parse.whole(1, 65_536))
    """Connections from one address to each port of a gateway, unless it is this box; more where a proxy on another box
    stands in front of it."""
    inspect_seconds: int = setting("INSPECT_SECONDS", "20", parse.whole(1, 3600))
    """CPU time an upload's inspection may take."""
    inspect_memory_bytes: int = setting("INSPECT_MEMORY_MB", "2048", parse.whole(256, 65_536, MIB))
    """Address space that an upload's inspection may take beyond its model."""
    require_isolation: bool = setting("REQUIRE_ISOLATION", "0", parse.flag)
    """Whether uploads are refused where the kernel cannot isolate their inspection."""
    confine_executors: bool = setting("CONFINE_EXECUTORS", "1", parse.flag)
    """Whether executors confine themselves by Landlock and seccomp."""
    plan_period_s: float = setting("PLAN_PERIOD_S", "30", parse.number(1, 3600))
    """Time between two regular plans."""
    demand_quantile: float = setting("DEMAND_QUANTILE", "0.95", parse.number(0.5, 0.999))
    """Share of plan periods whose mean demand the forecast should cover."""
    promise_period_s: float = setting("PROMISE_PERIOD_S", "300", parse.number(10, 600))
    """Time between two promises for the plan in force, which are kept and compared with what comes; each takes up to 5
    s of processor time at low priority."""
    keep_plans: int = setting("KEEP_PLANS", "5000", parse.whole(10, 1_000_000))
    """Number of plans that are kept with their allocations."""
    solve_s: float = setting("SOLVE_S", "3", parse.number(0.1, 600))
    """Time limit of a solve; the best allocation by then becomes the plan, with its certified gap. Each MILP of
    `nereus` has a third of it."""
    stack: str = setting("STACK", DEFAULT, _stack)
    """The default stack: how the cluster plans, assigns and batches queries; operators may choose another one while it
    runs."""
    device_costs: dict[str, float] = setting("DEVICE_COSTS", "", parse.factors)
    """Cost of a second of a device, relative to others, by device type or kind, as in ``cpu=1,cuda=16``; those not
    named cost 1. For `infaas-greedy`, which saves devices."""
    queue_rows: int = setting("QUEUE_ROWS", "512", parse.whole(1, 100_000))
    """Rows that may wait per device before queries are refused."""
    profile_share: float = setting("PROFILE_SHARE", "0.05", parse.number(0.01, 0.5))
    """Least share of a busy device that profiling gets."""
    log_level: str = setting("LOG_LEVEL", "info", parse.choice("debug", "info", "warning", "error"))
    """``debug``, ``info``, ``warning`` or ``error``."""
    warnings: tuple[str, ...]
    """A line for each variable that was set but is no longer used."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Parse all settings; SettingsError has a line for each that is wrong or unknown."""
        read = Reader(os.environ if environ is None else environ)
        values = {
            field.name: read.read(variable) for field in fields(cls) if (variable := field.metadata.get("variable"))
        }
        certified = _check_certificate(read, values)
        for name in ("console", "http", "grpc"):
            encrypted = values["tls"] == "on" or (values["tls"] == "auto" and (certified or not values[name].loopback))
            values[name] = msgspec.structs.replace(values[name], tls=encrypted)
        _check_control_plane(read, values)
        clustered = not values["console"].loopback or not is_loopback(_host_of(values["control_url"]))
        for name, port in (("core", 8002), ("executors", 8100)):
            if values[name] == "auto":
                values[name] = Address("0.0.0.0", port) if clustered else None
        settings = cls(**values, warnings=read.warnings())
        read.unknown()
        read.problems += settings._port_problems()
        if read.problems:
            raise SettingsError(read.problems)
        return settings

    def _port_problems(self) -> list[str]:
        listening: dict[int, str] = {}
        problems = []
        for name, address in (
            ("HTTP", self.http),
            ("GRPC", self.grpc),
            ("CONSOLE", self.console),
            ("NODE_HTTP", self.node_http),
            ("CORE", self.core),
        ):
            if address is None:
                continue
            if address.port in listening:
                other = listening[address.port]
                problems.append(f"{PREFIX}{name}={address}: must be another port than {PREFIX}{other}")
            listening.setdefault(address.port, name)
        if self.executors is not None:
            # Hardware decides how many ports they take.
            problems += executor_port_problems(self.executors, 1, listening)
        return problems

    @property
    def tls_used(self) -> bool:
        return self.console.tls or self.http.tls or self.grpc.tls

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names of this box: its public URL's host, address, allowed hosts, listeners."""
        public = urlsplit(self.public_url).hostname
        listening = (self.console.host, self.http.host, self.grpc.host)
        others = [name for name in (public, self.address) if name]
        return (*others, *self.allowed_hosts, *listening)

    @property
    def instance(self) -> str:
        """A name for this home among those that share a database and a Redis."""
        return hashlib.sha256(f"{self.node_name} {self.home}".encode()).hexdigest()[:12]

    @property
    def gateway_core_socket(self) -> Path:
        return self.socket_folder / "gateway-core.sock"

    @property
    def gateway_names(self) -> tuple[str, ...]:
        first = f"{self.node_name}-gateway"
        names = [first, *(f"{first}-{number}" for number in range(2, self.gateways + 1))]
        return tuple(disk.safe_name(name, 63) for name in names)

    def gateway_socket(self, number: int) -> Path:
        """The admin socket of gateway ``number`` (from 1), for that process alone."""
        return self.socket_folder / f"gateway-{number}.sock"

    def link_status(self, kind: str) -> Path:
        """The state of a ``node``'s or ``gateway``'s link, for the supervisor."""
        return self.socket_folder / f"{kind}.link"

    def heartbeat(self, service: str) -> Path:
        return self.socket_folder / f"{service}.heartbeat"

    @property
    def model_cache(self) -> Path:
        return self.home / "cache"

    @property
    def cuda_cache(self) -> Path:
        return self.home / "cuda-cache"

    @property
    def socket_folder(self) -> Path:
        """The folder (mode 0700) of sockets, with a short path where ``home`` is deep."""
        folder = self.home / "run"
        if len(str(folder)) + 40 <= SOCKET_PATH_LIMIT:
            return folder
        digest = hashlib.sha256(str(self.home).encode()).hexdigest()[:12]
        return Path("/tmp") / f"nereus-{os.getuid()}-{digest}"

    def make_folders(self) -> None:
        """Create ``home`` and the socket folder, readable by this user alone."""
        for folder in (self.home, self.socket_folder):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                if folder.stat().st_uid != os.getuid():
                    # Before it is changed: root could close another user's folder to its owner.
                    raise SettingsError([f"{PREFIX}HOME={self.home}: {folder} must belong to the user who runs Nereus"])
                folder.chmod(0o700)
            except OSError as error:
                raise SettingsError(
                    [f"{PREFIX}HOME={self.home}: {folder} cannot be made or changed: {error}"]
                ) from None
