"""Settings of every Nereus process, read once from ``NEREUS_*`` environment variables.

Each value is parsed where it is read and every mistake is collected, so that one start shows an operator all of
them; :meth:`Settings.from_environ` raises one :class:`SettingsError` that names each variable and its limit. A variable
with the prefix that nothing reads is a mistake too: it is nearly always a misspelling.

Control plane and data plane share this module; it imports neither Django nor any model.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from . import disk
from .dispatch import stacks

PREFIX = "NEREUS_"
#: A unix socket's path must fit into ``sockaddr_un.sun_path``, its closing NUL included.
SOCKET_PATH_LIMIT = 107


class SettingsError(Exception):
    """One or more environment variables cannot be used; ``problems`` has a line for each."""

    def __init__(self, problems: list[str]):
        super().__init__("\n".join(problems))
        self.problems = problems


#: gateway processes on one box, at most
MAX_GATEWAYS = 64
#: what nodes, applications and variants may be called
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"


def _host_name() -> str:
    """This box's host name, as far as it can be a node's."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", os.uname().nodename)[:63].lstrip("._-")
    return name or "node"


class Address(msgspec.Struct, frozen=True):
    """Where a TCP server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def url(self) -> str:
        """The address as a browser on this box would write it (a wildcard host becomes loopback)."""
        return f"http://{self.local}"

    @property
    def local(self) -> str:
        """HOST:PORT for clients on this box (a wildcard host becomes loopback)."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"{_bracketed(host)}:{self.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Reader:
    """Parses variables one by one and remembers what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]):
        self._environ = environ
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.known: set[str] = set()

    def _raw(self, name: str) -> str | None:
        self.known.add(PREFIX + name)
        value = self._environ.get(PREFIX + name)
        return None if value is None or value.strip() == "" else value.strip()

    def wrong(self, name: str, must: str) -> None:
        self.problems.append(f"{PREFIX}{name}={self._environ.get(PREFIX + name)!r}: must be {must}")

    def text(self, name: str, default: str) -> str:
        value = self._raw(name)
        return default if value is None else value

    def number(self, name: str, default: float, low: float, high: float, kind: type = float):
        value = self._raw(name)
        if value is None:
            return default
        what = "a whole number" if kind is int else "a number"
        try:
            parsed = kind(value)
        except ValueError:
            parsed = None
        if parsed is None or not low <= parsed <= high:
            self.wrong(name, f"{what} from {low:g} to {high:g}")
            return default
        return parsed

    def name(self, name: str, default: str) -> str:
        value = self._raw(name)
        if value is None:
            return default
        if not re.fullmatch(NAME, value):
            self.wrong(name, "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit")
            return default
        return value

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._raw(name)
        if value is None:
            return default
        if value not in choices:
            self.wrong(name, "one of " + ", ".join(choices))
            return default
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._raw(name)
        if value is None:
            return default
        if value.lower() in ("1", "true", "yes", "on"):
            return True
        if value.lower() in ("0", "false", "no", "off"):
            return False
        self.wrong(name, "1 or 0")
        return default

    def address(self, name: str, default: str) -> Address:
        value = self._raw(name)
        text = default if value is None else value
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]\s]+)):(\d{1,5})", text)
        if match is None or not 1 <= int(match[3]) <= 65535:
            self.wrong(name, "HOST:PORT with a port from 1 to 65535")
            match = re.fullmatch(r"(\[\])?([^:]+):(\d+)", default)
        return Address(match[1] or match[2], int(match[3]))

    def url(self, name: str, default: str, schemes: tuple[str, ...]) -> str:
        value = self._raw(name)
        if value is None:
            return default
        if not any(value.startswith(scheme + "://") for scheme in schemes):
            self.wrong(name, "a URL that begins with " + " or ".join(s + "://" for s in schemes))
            return default
        return value.rstrip("/")

    def cores(self, name: str, default: str) -> str:
        """``auto``, ``COUNTxCORES`` or core lists such as ``0-1;2,3`` (see workers.node.devices)."""
        value = self._raw(name)
        text = default if value is None else value
        part = r"\d+(-\d+)?(,\d+(-\d+)?)*"
        if text not in ("auto", "none") and not re.fullmatch(rf"[1-9]\d{{0,2}}x[1-9]\d{{0,2}}|{part}(;{part})*", text):
            self.wrong(name, "auto, none, COUNTxCORES (2x1) or core lists such as 0-1;2,3")
            return default
        return text

    def retired(self, name: str, instead: str) -> None:
        """A variable of an earlier release: warn and name what is used instead, rather than stop the start."""
        if self._raw(name) is not None:
            self.warnings.append(f"{PREFIX}{name}: no longer used; {instead}")

    def stack(self) -> str:
        """The stack: ``NEREUS_STACK``, for this release also ``NEREUS_STRATEGY`` where it names a stack."""
        old = self._raw("STRATEGY")
        if old in stacks.LIVE and self._raw("STACK") is None:
            self.warnings.append(
                f"{PREFIX}STRATEGY: replaced by {PREFIX}STACK; the stack {old} is used this time. "
                f"Set {PREFIX}STACK={old} instead, for the next release no longer reads {PREFIX}STRATEGY"
            )
            chosen = old
        else:
            chosen = self.choice("STACK", stacks.DEFAULT, stacks.LIVE)
            self.retired("STRATEGY", f"the stack {chosen} is used; {PREFIX}STACK chooses another")
        self.retired("ROUTING", f"it is part of the stack ({PREFIX}STACK), here {chosen}")
        return chosen

    def unknown(self) -> None:
        for name in sorted(self._environ):
            if name.startswith(PREFIX) and name not in self.known:
                near = difflib.get_close_matches(name, self.known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.problems.append(f"{name}: no such setting{hint}")


@dataclass(frozen=True)
class Settings:
    """Every setting, parsed. Times in seconds and sizes in bytes unless the name says otherwise."""

    home: Path
    """Where the local appliance writes everything (``NEREUS_HOME``)."""
    http: Address
    """V2 HTTP, the gateway (``NEREUS_HTTP``)."""
    grpc: Address
    """V2 gRPC, the gateway (``NEREUS_GRPC``)."""
    gateways: int
    """Fronts of the gateway on this box, which share both addresses (``NEREUS_GATEWAYS``); one core decides for all."""
    console: Address
    """Console, REST and websockets (``NEREUS_CONSOLE``)."""
    node_http: Address
    """The node daemon's metrics and health (``NEREUS_NODE_HTTP``)."""
    control_url: str
    """Where nodes and gateways find the control plane (``NEREUS_CONTROL_URL``); default: the console's address."""
    cpu_devices: str
    """How CPU cores become devices (``NEREUS_CPU_DEVICES``): ``auto``, ``none``, ``2x1`` or ``0-1;2,3``."""
    gpu: bool
    """Whether GPUs become devices (``NEREUS_GPU``)."""
    node_name: str
    """This box's name (``NEREUS_NODE_NAME``); default: its host name."""
    join_token: str
    """Admits a node or gateway (``NEREUS_JOIN_TOKEN``)."""
    database_url: str
    """``postgresql://…``; empty: SQLite in ``home`` (``NEREUS_DATABASE_URL``)."""
    redis_url: str
    """``redis://…`` or ``unix://…``; empty: the private Redis in ``home`` (``NEREUS_REDIS_URL``)."""
    allowed_hosts: tuple[str, ...]
    """Host names under which the console answers (``NEREUS_ALLOWED_HOSTS``, comma separated)."""
    max_upload_bytes: int
    """Largest ONNX or validation upload (``NEREUS_MAX_UPLOAD_MB``)."""
    max_request_bytes: int
    """Largest query, a body or a gRPC message (``NEREUS_MAX_REQUEST_MB``)."""
    inspect_seconds: int
    """CPU time an upload's inspection may take (``NEREUS_INSPECT_SECONDS``)."""
    inspect_memory_bytes: int
    """Address space that an upload's inspection may take beyond its model (``NEREUS_INSPECT_MEMORY_MB``)."""
    plan_period_s: float
    """Time between two regular plans (``NEREUS_PLAN_PERIOD_S``)."""
    headroom: float
    """Planned demand over the forecast (``NEREUS_HEADROOM``), whose margin is its quantile."""
    demand_quantile: float
    """Share of plan periods whose mean demand the forecast should cover (``NEREUS_DEMAND_QUANTILE``)."""
    solve_s: float
    """Time limit of a solve (``NEREUS_SOLVE_S``); what is best by then becomes the plan, with its certified gap."""
    stack: str
    """How the cluster plans, assigns and batches queries (``NEREUS_STACK``); operators may choose another while it
    runs."""
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
        read = _Reader(os.environ if environ is None else environ)
        read.retired("COMPILED", "the query path is no longer compiled")
        console = read.address("CONSOLE", "127.0.0.1:8080")
        mib = 1024 * 1024
        home = Path(read.text("HOME", ".nereus")).expanduser().absolute()
        settings = cls(
            home=home,
            http=read.address("HTTP", "127.0.0.1:8000"),
            grpc=read.address("GRPC", "127.0.0.1:8001"),
            gateways=read.number("GATEWAYS", 1, 1, MAX_GATEWAYS, int),
            console=console,
            node_http=read.address("NODE_HTTP", "127.0.0.1:8090"),
            control_url=read.url("CONTROL_URL", console.url, ("http", "https")),
            cpu_devices=read.cores("CPU_DEVICES", "auto"),
            gpu=read.flag("GPU", True),
            node_name=read.name("NODE_NAME", _host_name()),
            join_token=read.text("JOIN_TOKEN", ""),
            database_url=read.url("DATABASE_URL", "", ("postgresql", "postgres")),
            redis_url=read.url("REDIS_URL", "", ("redis", "rediss", "unix")),
            allowed_hosts=tuple(h.strip() for h in read.text("ALLOWED_HOSTS", "").split(",") if h.strip()),
            max_upload_bytes=read.number("MAX_UPLOAD_MB", 512, 1, 16384, int) * mib,
            max_request_bytes=read.number("MAX_REQUEST_MB", 80, 1, 1024, int) * mib,
            inspect_seconds=read.number("INSPECT_SECONDS", 20, 1, 3600, int),
            inspect_memory_bytes=read.number("INSPECT_MEMORY_MB", 2048, 256, 65536, int) * mib,
            plan_period_s=read.number("PLAN_PERIOD_S", 30.0, 1, 3600),
            headroom=read.number("HEADROOM", 1.0, 1, 3),
            demand_quantile=read.number("DEMAND_QUANTILE", 0.95, 0.5, 0.999),
            solve_s=read.number("SOLVE_S", 3.0, 0.1, 600),
            stack=read.stack(),
            queue_rows=read.number("QUEUE_ROWS", 512, 1, 100000, int),
            profile_share=read.number("PROFILE_SHARE", 0.05, 0.01, 0.5),
            log_level=read.choice("LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
            warnings=tuple(read.warnings),
        )
        read.unknown()
        if home.exists() and not home.is_dir():
            read.wrong("HOME", "a folder, or a path where one can be made")
        listening: dict[int, str] = {}
        for name, address in (
            ("HTTP", settings.http),
            ("GRPC", settings.grpc),
            ("CONSOLE", settings.console),
            ("NODE_HTTP", settings.node_http),
        ):
            if address.port in listening:
                read.problems.append(
                    f"{PREFIX}{name}={address}: must be another port than {PREFIX}{listening[address.port]}"
                )
            listening.setdefault(address.port, name)
        if read.problems:
            raise SettingsError(read.problems)
        return settings

    def environ(self) -> dict[str, str]:
        """The paths that every child process must agree on, as variables for its environment."""
        return {PREFIX + "HOME": str(self.home)}

    @property
    def gateway_core_socket(self) -> Path:
        """Where the core of several fronts listens for them."""
        return self.socket_folder / "gateway-core.sock"

    @property
    def gateway_names(self) -> tuple[str, ...]:
        """What this box's gateways are called, the same after each start; a member's name has 63 characters at most."""
        first = f"{self.node_name}-gateway"
        names = [first, *(f"{first}-{number}" for number in range(2, self.gateways + 1))]
        return tuple(disk.safe_name(name, 63) for name in names)

    def gateway_socket(self, number: int) -> Path:
        """Where gateway ``number`` (from 1) of several is asked for what concerns that process alone."""
        return self.socket_folder / f"gateway-{number}.sock"

    def gateway_totals(self, number: int) -> Path:
        """Where gateway ``number`` (from 1) of several keeps its totals, for as long as the appliance runs."""
        return self.socket_folder / f"gateway-{number}.totals"

    @property
    def socket_folder(self) -> Path:
        """A folder (mode 0700) whose sockets' paths are short enough, also when ``home`` is deep."""
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
                folder.chmod(0o700)
            except OSError as error:
                raise SettingsError(
                    [f"{PREFIX}HOME={self.home}: {folder} cannot be made or changed: {error}"]
                ) from None
            if folder.stat().st_uid != os.getuid():
                raise SettingsError([f"{PREFIX}HOME={self.home}: {folder} must belong to the user who runs Nereus"])
