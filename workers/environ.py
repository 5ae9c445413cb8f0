"""A parser for ``NEREUS_*`` environment variables.

It parses them one by one, and collects the mistakes of all of them.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from .addresses import Address, is_loopback
from .dispatch import stacks

PREFIX = "NEREUS_"
#: stacks of earlier versions that only simulations run now: a box that names one starts all the same
SIMULATED = frozenset(
    (
        *("clipper-ht", "clipper+", "sommelier", "infaas-ilp", "sm+", "ms+", "vpa+", "jellyfish+", "modelswitching"),
        *("proteus-wo-ms", "proteus-wo-mp", "proteus-wo-ab", "proteus-sharing"),
        *("ramsis-by-decisions", "ramsis-gamma", "ramsis-shortest-queue", "ramsis-variable"),
    )
)
#: what nodes, applications and variants may be called
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
#: labels of letters, digits, dashes and underscores, joined by dots
HOST_NAME = r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?"
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]\s]+)):(\d{1,5})")

#: how cores become devices, for errors
CORES = "auto, none, COUNTxCORES (2x1) or core lists such as 0-1;2,3"
_LIST = r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*"


def divides_cores(text: str) -> bool:
    """Return whether the text says how cores become devices.

    Whether this box has these cores is another question.
    """
    pattern = rf"[1-9]\d{{0,2}}x[1-9]\d{{0,2}}|{_LIST}(;{_LIST})*"
    return text in ("auto", "none") or bool(re.fullmatch(pattern, text, re.ASCII))


class SettingsError(Exception):
    """One or more environment variables cannot be used.

    Attributes:
        problems: a line for each.
    """

    def __init__(self, problems: list[str]):
        super().__init__("\n".join(problems))
        self.problems = problems


class Reader:
    """Parses variables one by one and remembers what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]):
        self._environ = environ
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.known: set[str] = set()
        self._retired: set[str] = set()

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

    def factors(self, name: str) -> dict[str, float]:
        """``NAME=FACTOR,...``; by default none."""
        found = {}
        for item in filter(None, (part.strip() for part in self.text(name, "").split(","))):
            key, _, value = item.rpartition("=")
            try:
                factor = float(value)
            except ValueError:
                factor = 0.0
            if not key.strip() or not 0.001 <= factor <= 1e6:
                self.wrong(name, f"NAME=FACTOR,... with factors from 0.001 to 1000000, and {item!r} is not such")
                return {}
            found[key.strip()] = factor
        return found

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
        match = _ADDRESS.fullmatch(text)
        if match is None or not 1 <= int(match[3]) <= 65535:
            self.wrong(name, "HOST:PORT with a port from 1 to 65535")
            match = re.fullmatch(r"(\[\])?([^:]+):(\d+)", default)
        return Address(match[1] or match[2], int(match[3]))

    def cluster_address(self, name: str, port: int, clustered: bool) -> Address | None:
        """Return the address to listen on for other boxes; None where there is none.

        The variable is ``auto`` (all addresses, but only in a cluster), ``off`` or HOST:PORT.
        """
        value = self._raw(name) or "auto"
        if value == "off":
            return None
        if value == "auto":
            return Address("0.0.0.0", port) if clustered else None
        match = _ADDRESS.fullmatch(value)
        if match is None or not 1 <= int(match[3]) <= 65535:
            self.wrong(name, "auto, off or HOST:PORT with a port from 1 to 65535")
            return None
        return Address(match[1] or match[2], int(match[3]))

    def host(self, name: str) -> str:
        """A host name or IP address without a port; empty where it is not set."""
        value = self.text(name, "").strip("[]")
        try:
            wildcard = ipaddress.ip_address(value).is_unspecified
        except ValueError:
            wildcard = False
            if value and not re.fullmatch(HOST_NAME, value):
                self.wrong(name, "a host name or IP address, without a port")
                return ""
        if wildcard:
            self.wrong(name, "an address that other boxes can connect to, which a wildcard is not")
            return ""
        return value

    def url(self, name: str, default: str, schemes: tuple[str, ...]) -> str:
        value = self._raw(name)
        if value is None:
            return default
        if not any(value.startswith(scheme + "://") for scheme in schemes):
            # Without the value, which may have a password in any place.
            wanted = " or ".join(scheme + "://" for scheme in schemes)
            self.problems.append(f"{PREFIX}{name}: must be a URL that begins with {wanted}")
            return default
        return value.rstrip("/")

    def file(self, name: str) -> Path | None:
        value = self._raw(name)
        if value is None:
            return None
        path = Path(value).expanduser().absolute()
        if not path.is_file() or not os.access(path, os.R_OK):
            self.wrong(name, "a file that can be read")
        return path

    def certificate(self, tls: str) -> tuple[Path | None, Path | None]:
        """Return the files of certificate and key: both or neither.

        They must not be set where TLS is off, since nothing would use them.
        """
        files = self.file("TLS_CERT"), self.file("TLS_KEY")
        for name, given, other in (("TLS_CERT", files[0], files[1]), ("TLS_KEY", files[1], files[0])):
            if given is None and other is not None:
                self.wrong(name, "set too: a certificate and its key belong together")
        if any(files) and tls == "off":
            self.wrong("TLS", "auto or on where NEREUS_TLS_CERT is set")
        return files

    def control_url(self, console: Address, tls: str) -> str:
        """Return the control plane's URL.

        It may do without TLS on this box alone, or where TLS is off, since it carries tokens and models.
        """
        url = self.url("CONTROL_URL", console.url, ("http", "https"))
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            host = ""
        if not host:
            self.wrong("CONTROL_URL", "http(s)://HOST or http(s)://HOST:PORT")
        elif parts.scheme == "http" and not is_loopback(host) and tls != "off" and self._raw("CONTROL_URL"):
            self.wrong(
                "CONTROL_URL", "https:// unless its host is loopback, or NEREUS_TLS=off where the network encrypts"
            )
        return url

    def fingerprint(self, name: str, url: str) -> str:
        """Return a SHA-256 fingerprint as 64 lower-case digits; empty where it is not set.

        The server at ``url`` has to use TLS.
        """
        value = self.text(name, "").lower().removeprefix("sha256:").replace(":", "")
        if value and not re.fullmatch("[0-9a-f]{64}", value):
            self.wrong(name, "sha256: and 64 hexadecimal digits")
            return ""
        if value and not url.startswith("https://"):
            self.wrong(name, "empty where NEREUS_CONTROL_URL is not https://, since nothing verifies it there")
        return value

    def public_url(self) -> str:
        url = self.url("PUBLIC_URL", "", ("http", "https"))
        try:
            parts = urlsplit(url)
            whole = bool(parts.hostname) and parts.path in ("", "/") and not parts.query and not parts.fragment
            valid = not url or (whole and parts.username is None and (parts.port is None or parts.port > 0))
        except ValueError:
            valid = False
        if not valid:
            self.wrong("PUBLIC_URL", "http(s)://HOST or http(s)://HOST:PORT, with nothing behind it")
            return ""
        return url

    def addresses(self, name: str, default: str) -> tuple[str, ...]:
        """IP addresses and networks, comma separated."""
        found = tuple(part.strip() for part in self.text(name, default).split(",") if part.strip())
        for part in found:
            try:
                ipaddress.ip_network(part, strict=False)
            except ValueError:
                self.wrong(name, "IP addresses or networks such as 10.0.0.0/24, comma separated")
                return ()
        return found

    def cores(self, name: str, default: str) -> str:
        """Return how cores become devices: a text that is known to be well-formed.

        It is ``auto``, ``none``, ``COUNTxCORES`` or core lists such as ``0-1;2,3`` (see :mod:`.partition`).
        """
        value = self._raw(name)
        text = default if value is None else value
        if not divides_cores(text):
            self.wrong(name, CORES)
            return default
        return text

    def retired(self, name: str, instead: str) -> None:
        """Warn where a variable of an earlier release is set.

        The warning names what is used instead; the start goes on.
        """
        self._retired.add(PREFIX + name)
        if self._raw(name) is not None:
            self.warnings.append(f"{PREFIX}{name}: no longer used; {instead}")

    def stack(self) -> str:
        """Return the stack that ``NEREUS_STACK`` chooses.

        For this release, ``NEREUS_STRATEGY`` may choose it, too, where it names a stack.
        """
        old = self._raw("STRATEGY")
        if old in stacks.LIVE and self._raw("STACK") is None:
            self.warnings.append(
                f"{PREFIX}STRATEGY: replaced by {PREFIX}STACK; the stack {old} is used this time. "
                f"Set {PREFIX}STACK={old} instead, for the next release no longer reads {PREFIX}STRATEGY"
            )
            chosen = old
        elif (named := self._raw("STACK")) in SIMULATED:
            chosen = stacks.DEFAULT
            self.warnings.append(
                f"{PREFIX}STACK={named}: only simulations run this stack now; the default, {chosen}, is "
                f"used. Set {PREFIX}STACK to one of {', '.join(stacks.LIVE)}"
            )
        else:
            chosen = self.choice("STACK", stacks.DEFAULT, stacks.LIVE)
            self.retired("STRATEGY", f"the stack {chosen} is used; {PREFIX}STACK chooses another")
        self.retired("ROUTING", f"it is part of the stack ({PREFIX}STACK), here {chosen}")
        return chosen

    def unknown(self) -> None:
        for name in sorted(self._environ):
            if name.startswith(PREFIX) and name not in self.known:
                near = difflib.get_close_matches(name, self.known - self._retired, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.problems.append(f"{name}: no such setting{hint}")
