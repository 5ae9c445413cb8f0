"""The events of one row: events of clients and of the observer, as JSON lines.

Times are ``time.monotonic()`` of this machine, which all its processes share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """A client sends a query. ``id``: unique; the server must echo it."""

    id: str
    application: str
    protocol: str
    at: float


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A client's query ends.

    Attributes:
        end: ``ok``: an answer; ``fail``: the server refused it, or it was never sent; ``unknown``: the connection
            failed or nothing came, so that it may or may not have run.
        status: HTTP's or gRPC's; 0: none.
        answer_id: as echoed.
        right: the output is that of the variant for the query's input.
        rows: of its batch; ``inside_ms``: of its wait and its run; both where they are known.
    """

    id: str
    at: float
    end: Literal["ok", "fail", "unknown"]
    status: int = 0
    answer_id: str = ""
    variant: str = ""
    device: str = ""
    accuracy: float = 0.0
    right: bool = True
    note: str = ""
    rows: int = 0
    inside_ms: float = 0.0


class Planned(msgspec.Struct, frozen=True, tag="planned"):
    """A plan was made.

    Attributes:
        at: when it was stored.
        digest: hash of its content.
        allowed: (application, variant, device) that may answer.
        accuracy: percent, by "APPLICATION/VARIANT".
    """

    version: int
    at: float
    digest: str
    allowed: tuple[tuple[str, str, str], ...]
    accuracy: dict[str, float] = {}


class Follows(msgspec.Struct, frozen=True, tag="follows"):
    member: str
    version: int
    at: float


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """A process's count of queries, by application; ``started`` differs from one start of it to the next."""

    process: str
    at: float
    queries: dict[str, int]
    started: float = 0.0


class Arrived(msgspec.Struct, frozen=True, tag="arrived"):
    """One second's arrivals at a gateway, as the control plane counts them; ``entry``: its place in the stream."""

    entry: str
    gateway: str
    queries: dict[str, int]


class Mark(msgspec.Struct, frozen=True, tag="mark"):
    name: str
    at: float


Event = Sent | Ended | Planned | Follows | Counted | Arrived | Mark
_decode = msgspec.json.Decoder(Event).decode
_encode = msgspec.json.Encoder().encode


def line(event: Event) -> bytes:
    return _encode(event) + b"\n"


def write(path: Path, events: Iterable[Event]) -> None:
    path.write_bytes(b"".join(map(line, events)))


def read(path: Path) -> list[Event]:
    return list(Tail(path).new())


class Tail:
    def __init__(self, path: Path):
        self._path = path
        self._at = 0

    def new(self) -> Iterator[Event]:
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._at += end
        yield from map(_decode, data[:end].splitlines())
