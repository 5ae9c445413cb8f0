"""Parsers of ``NEREUS_*`` environment variables, and a reader of them."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .addresses import Address

PREFIX = "NEREUS_"
#: variables that nothing reads any more, and why
RETIRED = {
    "BLOB_TRANSFERS": "eight files are sent at a time",
    "COMPILED": "the query path is no longer compiled",
    "FORECASTER": "demand is forecast by level and trend; simulations have the other forecasters",
    "HEADROOM": "demand is planned for by its quantile (NEREUS_DEMAND_QUANTILE)",
    **dict.fromkeys(
        ("INFADAPTER_ALPHA", "INFADAPTER_BETA", "INFADAPTER_GAMMA", "INFADAPTER_CORES"),
        "InfAdapter's weights and cores are those of its paper",
    ),
    "STRATEGY": "NEREUS_STACK chooses how the cluster plans",
    "ROUTING": "it is part of the stack (NEREUS_STACK)",
}
#: what nodes, applications and variants may be called
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
#: labels of letters, digits, dashes and underscores, joined by dots
HOST_NAME = r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?"
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]\s]+)):(\d{1,5})")

#: how cores become devices, for errors
CORES = "auto, none, COUNTxCORES (2x1) or core lists such as 0-1;2,3"
_LIST = r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*"

#: Makes a value of a text; raises :class:`Wrong`.
Parse = Callable[[str], Any]


class Wrong(ValueError):
    """A text that cannot be used; the message is what it must be.

    Attributes:
        shown: False: the text may have a password in any place.
    """

    def __init__(self, must: str, shown: bool = True):
        super().__init__(must)
        self.shown = shown


class SettingsError(Exception):
    """One or more environment variables cannot be used.

    Attributes:
        problems: a line for each.
    """

    def __init__(self, problems: list[str]):
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Variable:
    name: str
    default: str  # its text where it is not set or empty
    parse: Parse
    shown: str  # that text in the documentation


def setting(name: str, default: str, parse: Parse = str, shown: str | None = None) -> Any:
    shown = shown if shown is not None else f"`{default}`" if default else ""
    return field(metadata={"variable": Variable(name, default, parse, shown)})


class Reader:
    """Reads variables one by one and remembers what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]):
        self._environ = environ
        self.problems: list[str] = []
        self.known = {PREFIX + name for name in RETIRED}

    def is_set(self, name: str) -> bool:
        return bool(self._environ.get(PREFIX + name, "").strip())

    def read(self, variable: Variable) -> Any:
        self.known.add(PREFIX + variable.name)
        try:
            return variable.parse(self._environ.get(PREFIX + variable.name, "").strip() or variable.default)
        except Wrong as error:
            self.wrong(variable.name, str(error), error.shown)
            return variable.parse(variable.default)

    def wrong(self, name: str, must: str, shown: bool = True) -> None:
        value = f"={self._environ.get(PREFIX + name)!r}" if shown else ""
        self.problems.append(f"{PREFIX}{name}{value}: must be {must}")

    def warnings(self) -> tuple[str, ...]:
        return tuple(f"{PREFIX}{name}: no longer used; {why}" for name, why in RETIRED.items() if self.is_set(name))

    def unknown(self) -> None:
        """A variable with the prefix that nothing reads is a mistake, too."""
        for name in sorted(self._environ):
            if name.startswith(PREFIX) and name not in self.known:
                usable = self.known - {PREFIX + retired for retired in RETIRED}
                near = difflib.get_close_matches(name, usable, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.problems.append(f"{name}: no such setting{hint}")


# --- parsers ----------------------------------------------------------------------------------------------------------


def number(low: float, high: float, kind: type = float, times: float = 1) -> Parse:
    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise Wrong(f"{'a whole number' if kind is int else 'a number'} from {low:g} to {high:g}")
        return value * kind(times)

    return parse


def whole(low: int, high: int, times: int = 1) -> Parse:
    return number(low, high, int, times)


def choice(*choices: str) -> Parse:
    def parse(text: str) -> str:
        if text not in choices:
            raise Wrong("one of " + ", ".join(choices))
        return text

    return parse


def url(*schemes: str) -> Parse:
    """A URL without its last slash; empty where it is not set."""

    def parse(text: str) -> str:
        if text and not any(text.startswith(scheme + "://") for scheme in schemes):
            raise Wrong("a URL that begins with " + " or ".join(scheme + "://" for scheme in schemes), shown=False)
        return text.rstrip("/")

    return parse


def flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise Wrong("1 or 0")


def name(text: str) -> str:
    if not re.fullmatch(NAME, text):
        raise Wrong("1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit")
    return text


def words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def factors(text: str) -> dict[str, float]:
    factors_by_name = {}
    for item in words(text):
        key, _, value = item.rpartition("=")
        try:
            factor = float(value)
        except ValueError:
            factor = 0.0
        if not key.strip() or not 0.001 <= factor <= 1e6:
            raise Wrong(f"NAME=FACTOR,... with factors from 0.001 to 1000000, and {item!r} is not such")
        factors_by_name[key.strip()] = factor
    return factors_by_name


def address(text: str, also: str = "") -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None or not 1 <= int(match[3]) <= 65535:
        raise Wrong(also + "HOST:PORT with a port from 1 to 65535")
    return Address(match[1] or match[2], int(match[3]))


def cluster_address(text: str) -> Address | str | None:
    """An address, ``auto``, or None for ``off``."""
    if text == "auto":
        return text
    return None if text == "off" else address(text, "auto, off or ")


def host(text: str) -> str:
    """A host name or IP address without a port; empty where it is not set."""
    text = text.strip("[]")
    try:
        wildcard = ipaddress.ip_address(text).is_unspecified
    except ValueError:
        wildcard = False
        if text and not re.fullmatch(HOST_NAME, text):
            raise Wrong("a host name or IP address, without a port") from None
    if wildcard:
        raise Wrong("an address that other boxes can connect to, which a wildcard is not")
    return text


def addresses(text: str) -> tuple[str, ...]:
    """IP addresses and networks, comma separated."""
    for part in words(text):
        try:
            ipaddress.ip_network(part, strict=False)
        except ValueError:
            raise Wrong("IP addresses or networks such as 10.0.0.0/24, comma separated") from None
    return words(text)


def public_url(text: str) -> str:
    text = url("http", "https")(text)
    try:
        parts = urlsplit(text)
        whole_url = bool(parts.hostname) and parts.path in ("", "/") and not parts.query and not parts.fragment
        valid = not text or (whole_url and parts.username is None and (parts.port is None or parts.port > 0))
    except ValueError:
        valid = False
    if not valid:
        raise Wrong("http(s)://HOST or http(s)://HOST:PORT, with nothing behind it")
    return text


def fingerprint(text: str) -> str:
    """A SHA-256 fingerprint as 64 lower-case digits; empty where it is not set."""
    text = text.lower().removeprefix("sha256:").replace(":", "")
    if text and not re.fullmatch("[0-9a-f]{64}", text):
        raise Wrong("sha256: and 64 hexadecimal digits")
    return text


def file(text: str) -> Path | None:
    if not text:
        return None
    path = Path(text).expanduser().absolute()
    if not path.is_file() or not os.access(path, os.R_OK):
        raise Wrong("a file that can be read")
    return path


def folder(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise Wrong("a folder, or a path where one can be made")
    return path


def cores(text: str) -> str:
    """How cores become devices (:mod:`.partition`), whether or not the box has them."""
    pattern = rf"[1-9]\d{{0,2}}x[1-9]\d{{0,2}}|{_LIST}(;{_LIST})*"
    if text not in ("auto", "none") and not re.fullmatch(pattern, text, re.ASCII):
        raise Wrong(CORES)
    return text
