"""Settings of every Nereus process, from ``NEREUS_*`` environment variables.

They are read once.

Each value is parsed where it is read and every mistake is collected, so that one start shows an operator all of
them; :meth:`Settings.from_environ` raises one :class:`SettingsError` that names each variable and its limit. A variable
with the prefix that nothing reads is a mistake too: it is nearly always a misspelling.

Control plane and data plane share this module; it imports neither Django nor any model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from . import disk
from .addresses import Address, is_loopback
from .environ import PREFIX, Reader, SettingsError

#: A unix socket's path must fit into ``sockaddr_un.sun_path``, its closing NUL included.
SOCKET_PATH_LIMIT = 107
#: where the control plane's own box keeps the join token of its members, in ``home``
JOIN_TOKEN_FILE = "join_token"
#: gateway processes on one box, at most
MAX_GATEWAYS = 64


def _host_name() -> str:
    """This box's host name, as far as it can be a node's."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", os.uname().nodename)[:63].lstrip("._-")
    return name or "node"


def _host_of(url: str) -> str:
    """A URL's host; empty where it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _devices_named(cpu_devices: str) -> int:
    """CPU devices that ``NEREUS_CPU_DEVICES`` names by itself; hardware adds more."""
    if cpu_devices in ("auto", "none"):
        return 1
    count, times, _ = cpu_devices.partition("x")
    return int(count) if times else cpu_devices.count(";") + 1


def executor_port_problems(first: Address, devices: int, listening: Mapping[int, str]) -> list[str]:
    """Return a line for each port of the executors that cannot be used.

    Such a port does not exist or is another setting's.

    Args:
        first: the first port, with its address.
        devices: executors, one port each.
        listening: settings by the port that they name, without ``NEREUS_``.
    """
    last = first.port + devices - 1
    takes = f"{PREFIX}EXECUTORS={first}: takes the ports {first.port} to {last}, one a device"
    if last > 65535:
        return [f"{takes}, and 65535 is the last; choose a lower first port"]
    return [
        f"{takes}, of which {PREFIX}{name} has {port}; choose another first port"
        for port, name in sorted(listening.items())
        if first.port <= port <= last
    ]


@dataclass(frozen=True)
class Settings:
    """Every setting, parsed.

    Times are in seconds and sizes in bytes unless the name says otherwise.
    """

    home: Path
    """The folder in which the local appliance writes everything (``NEREUS_HOME``)."""
    http: Address
    """V2 HTTP, the gateway (``NEREUS_HTTP``)."""
    grpc: Address
    """V2 gRPC, the gateway (``NEREUS_GRPC``)."""
    gateways: int
    """Gateways on this box, which share both addresses (``NEREUS_GATEWAYS``); the first decides for all."""
    console: Address
    """Console, REST and websockets (``NEREUS_CONSOLE``)."""
    node_http: Address
    """The node daemon's metrics and health (``NEREUS_NODE_HTTP``)."""
    address: str
    """Host name or address under which other boxes of the cluster reach this one (``NEREUS_ADDRESS``); empty: the local
    address of the link to the control plane."""
    core: Address | None
    """Address at which a gateway's core listens for fronts of other boxes, with mutual TLS (``NEREUS_CORE``): ``auto``
    is ``0.0.0.0:8002`` where this box is part of a cluster, that is where its console or its control URL is beyond
    loopback; ``off``: none."""
    executors: Address | None
    """Address and first port where executors listen for cores of other boxes, one port a device, with mutual TLS
    (``NEREUS_EXECUTORS``): ``auto`` is ``0.0.0.0:8100`` where this box is part of a cluster; ``off``: none."""
    control_url: str
    """URL of the control plane for nodes and gateways (``NEREUS_CONTROL_URL``); default: the console's address."""
    control_fingerprint: str
    """SHA-256 fingerprint of the authority behind the control plane's certificate, as ``manage.py join-command`` prints
    it (``NEREUS_CONTROL_FINGERPRINT``): a member fetches that authority before it sends anything, and trusts no other;
    empty: it trusts those of ``NEREUS_CA_FILE`` or the system."""
    tls: str
    """Use of TLS by gateway and console (``NEREUS_TLS``): ``auto`` beyond loopback, and everywhere with a certificate
    of yours; ``on`` everywhere; ``off`` nowhere, for networks that are encrypted otherwise."""
    tls_cert: Path | None
    """Your certificate with its chain, PEM (``NEREUS_TLS_CERT``); empty: one of the appliance's own authority,
    ``tls/authority.pem`` in ``NEREUS_HOME``. A replaced file is used within 10 s."""
    tls_key: Path | None
    """The key of that certificate, PEM without a passphrase (``NEREUS_TLS_KEY``)."""
    ca_file: Path | None
    """Authorities that outgoing connections trust instead of the system's, PEM (``NEREUS_CA_FILE``): control plane,
    Redis, PostgreSQL. Webhooks trust them besides the system's."""
    public_url: str
    """URL of the console for browsers, such as ``https://box.example.com:8443`` (``NEREUS_PUBLIC_URL``)."""
    trusted_proxies: tuple[str, ...]
    """Proxies whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` the console believes (``NEREUS_TRUSTED_PROXIES``):
    addresses or networks, comma separated."""
    metrics_from: tuple[str, ...]
    """Addresses or networks that may read `/metrics` and all of `/health` without a key (``NEREUS_METRICS_FROM``), at
    gateway, node and console, comma separated. Others get one word of `/health`."""
    webhook_networks: tuple[str, ...]
    """Addresses or networks that webhooks may reach besides public ones over https (``NEREUS_WEBHOOK_NETWORKS``), comma
    separated, such as ``10.0.0.0/8``; http is permitted there. None by default: a webhook could be led to services that
    trust this box."""
    cpu_devices: str
    """Division of CPU cores into devices (``NEREUS_CPU_DEVICES``): ``auto`` (all usable cores, in equal devices of 1,
    2, 4 or 8 that do not span NUMA nodes; a box with more than four cores leaves one to its control plane or gateway),
    ``none``, ``2x1`` or ``0-1;2,3``. A division that was ordered from the console has priority."""
    device_memory_share: float
    """Share of main memory that this box's CPU devices may take together (``NEREUS_DEVICE_MEMORY_SHARE``); each
    device's part is a limit that its process cannot exceed."""
    gpu: bool
    """Whether GPUs become devices (``NEREUS_GPU``)."""
    node_name: str
    """This box's name (``NEREUS_NODE_NAME``); default: its host name."""
    join_token: str
    """Admits a node or gateway (``NEREUS_JOIN_TOKEN``)."""
    database_url: str
    """``postgresql://…`` with any option of libpq (``sslmode``, ``sslcert`` and ``sslkey``, for example); empty: SQLite
    in ``home`` (``NEREUS_DATABASE_URL``)."""
    redis_url: str
    """``redis://…``, ``rediss://…`` or ``unix://…``, with user and password where it wants them; empty: the private
    Redis in ``home`` (``NEREUS_REDIS_URL``)."""
    redis_prefix: str
    """First part of every key in Redis, so that several appliances can share one (``NEREUS_REDIS_PREFIX``)."""
    allowed_hosts: tuple[str, ...]
    """Host names under which the console answers (``NEREUS_ALLOWED_HOSTS``, comma separated)."""
    audit_days: int
    """Days for which audit entries are kept (``NEREUS_AUDIT_DAYS``)."""
    max_upload_bytes: int
    """Largest ONNX or validation upload (``NEREUS_MAX_UPLOAD_MB``)."""
    blob_transfers: int
    """Models and validation sets that a web process sends to nodes at a time, one to each
    (``NEREUS_BLOB_TRANSFERS``)."""
    blob_bytes_per_s: float
    """Rate that these transfers share, in 10^6 bytes a second (``NEREUS_BLOB_MB_S``); 0: no limit. The default leaves
    a fifth of a gigabit link to all else."""
    max_request_bytes: int
    """Largest query, a body or a gRPC message (``NEREUS_MAX_REQUEST_MB``). An application's queries have a lower limit
    where its inputs have fixed sizes. Boxes of a cluster refuse larger frames from each other: set it alike on all."""
    max_json_bytes: int
    """Largest JSON part of a query (``NEREUS_MAX_JSON_MB``); larger tensors are sent as binary data."""
    address_connections: int
    """Connections from one address to each port of a gateway (``NEREUS_ADDRESS_CONNECTIONS``), unless it is this
    box; more where a proxy on another box stands in front of it."""
    inspect_seconds: int
    """CPU time an upload's inspection may take (``NEREUS_INSPECT_SECONDS``)."""
    inspect_memory_bytes: int
    """Address space that an upload's inspection may take beyond its model (``NEREUS_INSPECT_MEMORY_MB``)."""
    require_isolation: bool
    """Whether uploads are refused where the kernel cannot isolate their inspection (``NEREUS_REQUIRE_ISOLATION``)."""
    confine_executors: bool
    """Whether executors confine themselves by Landlock and seccomp (``NEREUS_CONFINE_EXECUTORS``)."""
    plan_period_s: float
    """Time between two regular plans (``NEREUS_PLAN_PERIOD_S``)."""
    headroom: float
    """Planned demand over the forecast (``NEREUS_HEADROOM``), whose margin is its quantile."""
    demand_quantile: float
    """Share of plan periods whose mean demand the forecast should cover (``NEREUS_DEMAND_QUANTILE``)."""
    promise_period_s: float
    """Time between two promises for the plan in force, which are kept and compared with what comes
    (``NEREUS_PROMISE_PERIOD_S``); each takes up to 5 s of processor time at low priority."""
    keep_plans: int
    """Number of plans that are kept with their allocations (``NEREUS_KEEP_PLANS``)."""
    solve_s: float
    """Time limit of a solve (``NEREUS_SOLVE_S``); the best allocation by then becomes the plan, with its certified
    gap. Each MILP of `nereus` has a third of it."""
    stack: str
    """The default stack: how the cluster plans, assigns and batches queries (``NEREUS_STACK``); operators may choose
    another one while it runs."""
    device_costs: dict[str, float]
    """Cost of a second of a device, relative to others, by device type or kind (``NEREUS_DEVICE_COSTS``), as in
    ``cpu=1,cuda=16``; those not named cost 1. For `infaas-greedy`, which saves devices."""
    infadapter_alpha: float
    """Worth of a point of mean accuracy to the stack `infadapter` (``NEREUS_INFADAPTER_ALPHA``)."""
    infadapter_beta: float
    """Cost of a core in use, for the same stack (``NEREUS_INFADAPTER_BETA``)."""
    infadapter_gamma: float
    """Cost of a second of an application's longest load, for the same stack (``NEREUS_INFADAPTER_GAMMA``)."""
    infadapter_cores: int
    """Cores that the same stack may use of all devices together (``NEREUS_INFADAPTER_CORES``); 0: all."""
    queue_rows: int
    """Rows that may wait per device before queries are refused (``NEREUS_QUEUE_ROWS``)."""
    profile_share: float
    """Least share of a busy device that profiling gets (``NEREUS_PROFILE_SHARE``)."""
    log_level: str
    """``debug``, ``info``, ``warning`` or ``error`` (``NEREUS_LOG_LEVEL``)."""
    warnings: tuple[str, ...]
    """A line for each variable that was set but is no longer used."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Parse and check all settings together.

        Raises:
            SettingsError: with one line for each variable that is wrong or unknown.
        """
        read = Reader(os.environ if environ is None else environ)
        read.retired("COMPILED", "the query path is no longer compiled")
        read.retired("FORECASTER", "demand is forecast by level and trend; simulations have the other forecasters")
        read.retired("ARRIVAL_SHAPE", "ramsis-gamma, which it was for, can only be simulated")
        tls = read.choice("TLS", "auto", ("auto", "on", "off"))
        tls_cert, tls_key = read.certificate(tls)

        def public(name: str, default: str) -> Address:
            address = read.address(name, default)
            encrypted = tls == "on" or (tls == "auto" and (tls_cert is not None or not address.loopback))
            return msgspec.structs.replace(address, tls=encrypted)

        console = public("CONSOLE", "127.0.0.1:8080")
        control_url = read.control_url(console, tls)
        clustered = not console.loopback or not is_loopback(_host_of(control_url))
        mib = 1024 * 1024
        home = Path(read.text("HOME", ".nereus")).expanduser().absolute()
        settings = cls(
            home=home,
            http=public("HTTP", "127.0.0.1:8000"),
            grpc=public("GRPC", "127.0.0.1:8001"),
            gateways=read.number("GATEWAYS", 1, 1, MAX_GATEWAYS, int),
            console=console,
            node_http=read.address("NODE_HTTP", "127.0.0.1:8090"),
            address=read.host("ADDRESS"),
            core=read.cluster_address("CORE", 8002, clustered),
            executors=read.cluster_address("EXECUTORS", 8100, clustered),
            control_url=control_url,
            control_fingerprint=read.fingerprint("CONTROL_FINGERPRINT", control_url),
            tls=tls,
            tls_cert=tls_cert,
            tls_key=tls_key,
            ca_file=read.file("CA_FILE"),
            public_url=read.public_url(),
            trusted_proxies=read.addresses("TRUSTED_PROXIES", "127.0.0.1,::1"),
            webhook_networks=read.addresses("WEBHOOK_NETWORKS", ""),
            metrics_from=read.addresses("METRICS_FROM", "127.0.0.0/8,::1"),
            cpu_devices=read.cores("CPU_DEVICES", "auto"),
            device_memory_share=read.number("DEVICE_MEMORY_SHARE", 0.9, 0.1, 1.0),
            gpu=read.flag("GPU", True),
            node_name=read.name("NODE_NAME", _host_name()),
            join_token=read.text("JOIN_TOKEN", ""),
            database_url=read.url("DATABASE_URL", "", ("postgresql", "postgres")),
            redis_url=read.url("REDIS_URL", "", ("redis", "rediss", "unix")),
            redis_prefix=read.name("REDIS_PREFIX", "nereus"),
            allowed_hosts=tuple(h.strip() for h in read.text("ALLOWED_HOSTS", "").split(",") if h.strip()),
            audit_days=read.number("AUDIT_DAYS", 400, 1, 36_500, int),
            max_upload_bytes=read.number("MAX_UPLOAD_MB", 512, 1, 16384, int) * mib,
            blob_transfers=read.number("BLOB_TRANSFERS", 8, 1, 1000, int),
            blob_bytes_per_s=read.number("BLOB_MB_S", 100.0, 0, 100_000) * 1e6,
            max_request_bytes=read.number("MAX_REQUEST_MB", 80, 1, 1024, int) * mib,
            max_json_bytes=read.number("MAX_JSON_MB", 8, 1, 1024, int) * mib,
            address_connections=read.number("ADDRESS_CONNECTIONS", 1024, 1, 65536, int),
            inspect_seconds=read.number("INSPECT_SECONDS", 20, 1, 3600, int),
            inspect_memory_bytes=read.number("INSPECT_MEMORY_MB", 2048, 256, 65536, int) * mib,
            require_isolation=read.flag("REQUIRE_ISOLATION", False),
            confine_executors=read.flag("CONFINE_EXECUTORS", True),
            plan_period_s=read.number("PLAN_PERIOD_S", 30.0, 1, 3600),
            headroom=read.number("HEADROOM", 1.0, 1, 3),
            demand_quantile=read.number("DEMAND_QUANTILE", 0.95, 0.5, 0.999),
            promise_period_s=read.number("PROMISE_PERIOD_S", 300.0, 10, 600),
            keep_plans=read.number("KEEP_PLANS", 5000, 10, 1_000_000, int),
            solve_s=read.number("SOLVE_S", 3.0, 0.1, 600),
            stack=read.stack(),
            device_costs=read.factors("DEVICE_COSTS"),
            infadapter_alpha=read.number("INFADAPTER_ALPHA", 1.0, 0, 1e6),
            infadapter_beta=read.number("INFADAPTER_BETA", 0.05, 0, 1e6),
            infadapter_gamma=read.number("INFADAPTER_GAMMA", 0.35, 0, 1e6),
            infadapter_cores=read.number("INFADAPTER_CORES", 0, 0, 1_000_000, int),
            queue_rows=read.number("QUEUE_ROWS", 512, 1, 100000, int),
            profile_share=read.number("PROFILE_SHARE", 0.05, 0.01, 0.5),
            log_level=read.choice("LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
            warnings=tuple(read.warnings),
        )
        read.unknown()
        if home.exists() and not home.is_dir():
            read.wrong("HOME", "a folder, or a path where one can be made")
        read.problems += settings._port_problems()
        if read.problems:
            raise SettingsError(read.problems)
        return settings

    def _port_problems(self) -> list[str]:
        """A line for each port that two settings claim."""
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
            problems += executor_port_problems(self.executors, _devices_named(self.cpu_devices), listening)
        return problems

    def environ(self) -> dict[str, str]:
        """Return the variables of a child process's environment.

        They have the paths on which every child process must agree.
        """
        return {PREFIX + "HOME": str(self.home)}

    @property
    def tls_used(self) -> bool:
        """Whether any of the public addresses uses TLS."""
        return self.console.tls or self.http.tls or self.grpc.tls

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names under which this box is expected.

        They are its public URL's host, its address, allowed hosts and the addresses to listen on.
        """
        public = urlsplit(self.public_url).hostname
        listening = (self.console.host, self.http.host, self.grpc.host)
        others = [name for name in (public, self.address) if name]
        return (*others, *self.allowed_hosts, *listening)

    @property
    def instance(self) -> str:
        """A name for this home among those that share a database and a Redis."""
        import hashlib

        return hashlib.sha256(f"{self.node_name} {self.home}".encode()).hexdigest()[:12]

    @property
    def gateway_core_socket(self) -> Path:
        """The address at which the first of several gateways listens for the others."""
        return self.socket_folder / "gateway-core.sock"

    @property
    def gateway_names(self) -> tuple[str, ...]:
        """Names of this box's gateways, the same after each start.

        A member's name has 63 characters at most.
        """
        first = f"{self.node_name}-gateway"
        names = [first, *(f"{first}-{number}" for number in range(2, self.gateways + 1))]
        return tuple(disk.safe_name(name, 63) for name in names)

    def gateway_socket(self, number: int) -> Path:
        """Return the admin socket of gateway ``number`` (from 1) of several.

        It is for matters of that process alone.
        """
        return self.socket_folder / f"gateway-{number}.sock"

    def gateway_totals(self, number: int) -> Path:
        """Return the file with the totals of gateway ``number`` (from 1) of several.

        The gateway keeps them there while the appliance runs.
        """
        return self.socket_folder / f"gateway-{number}.totals"

    def link_status(self, kind: str) -> Path:
        """Return the file with the state of a member's link, for the supervisor.

        ``kind`` is ``node`` or ``gateway``.
        """
        return self.socket_folder / f"{kind}.link"

    def heartbeat(self, service: str) -> Path:
        """A file that a service touches each time that it did something."""
        return self.socket_folder / f"{service}.heartbeat"

    @property
    def model_cache(self) -> Path:
        """The folder of the models and validation sets that the node's executors read."""
        return self.home / "cache"

    @property
    def cuda_cache(self) -> Path:
        """The folder in which CUDA keeps kernels compiled for this box's GPUs."""
        return self.home / "cuda-cache"

    @property
    def socket_folder(self) -> Path:
        """A folder (mode 0700) for sockets.

        Their paths are short enough, also when ``home`` is deep.
        """
        folder = self.home / "run"
        if len(str(folder)) + 40 <= SOCKET_PATH_LIMIT:
            return folder
        import hashlib

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
