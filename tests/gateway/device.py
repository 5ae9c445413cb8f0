"""A device for the gateway's tests, which speaks frames over a unix socket.

It is a process of its own:

    python -m tests.gateway.device ENDPOINT DEVICE

It computes with numpy and does as commanded, one JSON line on stdin a command: ``{"warm": [[id, name, application,
accuracy], ...]}``, ``{"delay_s": 0.1}``, ``{"refuse": ["late", true]}`` or null, ``{"mute": true}``,
``{"draining": true}``, ``{"crash_on": 666}`` (it crashes on a batch with that value), ``{"stop_on": 666}`` (its
watchdog stops such a batch), ``{"supervised": false}`` (it does not publish its crash); or nothing, ``{}``, after which
gateways do not get its state. A grant's queries of one shape it answers together. It reports each frame that it
receives on stdout as a JSON line.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import sys

import numpy as np

from workers.protocol import endings
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import (
    ExecutorState,
    Hello,
    Moved,
    Refusal,
    RequestShape,
    Results,
    ResultTensor,
    RunBatch,
    ToExecutor,
    WarmVariant,
    Withdraw,
)


class Device:
    def __init__(self, name: str, endpoint: str):
        self.name = name
        self.endpoint = endpoint
        self.supervised = True
        self.warm: tuple[WarmVariant, ...] = ()
        self.delay_s = 0.0
        self.refuse: list | None = None
        self.mute = False
        self.draining = False
        self.crash_on: float | None = None
        self.stop_on: float | None = None
        self.connections: set[FrameConnection] = set()

    def state(self) -> ExecutorState:
        return ExecutorState(self.name, 1, self.warm, self.draining, {}, 0.0)

    def command(self, line: str) -> None:
        for key, value in json.loads(line).items():
            if key == "warm":
                value = tuple(WarmVariant(*fields, True) for fields in value)
            setattr(self, key, value)
        if json.loads(line):
            for connection in self.connections:
                connection.send(self.state())
        report("told")

    def received(self, connection, message, body) -> None:
        if isinstance(message, Hello):
            self.connections.add(connection)
            connection.send(self.state())
        elif isinstance(message, RunBatch):
            report("grant", variant=message.variant, queries=len(message.queries), max_rows=message.max_rows)
            names = [known.name for known in self.warm if known.id == message.variant]
            for _, place, budget_s in message.queries:
                rows, variant = message.shapes[place].rows, names[0] if names else "none"
                report("query", budget_s=budget_s, rows=rows, variant=variant)
            asyncio.get_running_loop().call_later(self.delay_s, self.answer, connection, message, body)
        elif isinstance(message, Withdraw):
            report("cancel", id=message.id)
        elif isinstance(message, Moved):
            report("moved", plan_version=message.plan_version)

    def refused(self, connection, ids) -> bool:
        if self.mute:
            return True
        if self.refuse is not None:
            code, retryable = self.refuse
            for id in ids:
                connection.send(Refusal(id, code, f"told to say {code}", retryable))
        return self.refuse is not None

    def answer(self, connection, grant: RunBatch, body) -> None:
        ids = [id for id, _, _ in grant.queries]
        if self.crash_on is not None and self.crash_on in np.frombuffer(body, "<f4"):
            if self.supervised:
                # The gateway waits a second for it, which a busy machine may take before others publish it.
                endings.write(self.endpoint, endings.Ending(os.getpid(), True, "killed by SIGSEGV"))
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.stop_on is not None and self.stop_on in np.frombuffer(body, "<f4"):
            for id in ids:
                connection.send(Refusal(id, "stopped", "big: the run did not end in time", len(ids) > 1))
            return
        if self.refused(connection, ids):
            return
        able = [v for v in self.warm if v.id == grant.variant and v.application == grant.application]
        if not able:
            for id in ids:
                connection.send(Refusal(id, "not_resident", "no such variant here", True))
            return
        rows = sum(grant.shapes[place].rows for _, place, _ in grant.queries)
        alike: dict[tuple, list] = {}
        for (id, place, _), parts in zip(grant.queries, columns(grant, body), strict=True):
            shape = grant.shapes[place]
            outputs = [
                one for one in compute(grant.application, shape, parts) if one[0] in (shape.outputs or (one[0],))
            ]
            key = tuple((name, datatype, shape[1:]) for name, datatype, shape, _ in outputs)
            alike.setdefault((shape.outputs, key), []).append((id, shape.rows, outputs))
        variant, took = able[0], max(self.delay_s, 0.0001)
        for group in alike.values():
            joined = [together(column) for column in zip(*[outputs for _, _, outputs in group], strict=True)]
            answered = tuple(id for id, _, _ in group)
            counts = () if all(count == 1 for _, count, _ in group) else tuple(count for _, count, _ in group)
            times = (0.0, self.delay_s, rows, took)
            headers = tuple(header for header, _ in joined)
            named = (variant.name, variant.accuracy, 100.0)
            results = Results(grant.number, answered, *named, *times, headers, counts)
            connection.send(results, [data for _, data in joined])

    def lost(self, connection, error) -> None:
        self.connections.discard(connection)


def columns(grant: RunBatch, body) -> list[list]:
    """Return each query's inputs of a body that has them input by input."""
    headers = [grant.shapes[place].inputs for _, place, _ in grant.queries]
    parts, offset = [[] for _ in headers], 0
    for column in zip(*headers, strict=True):
        for into, header in zip(parts, column, strict=True):
            into.append(body[offset : offset + header.nbytes])
            offset += header.nbytes
    assert offset == len(body)
    return parts


def together(column) -> tuple[ResultTensor, bytes]:
    name, datatype, shape, _ = column[0]
    sizes = tuple(len(data) for _, _, _, data in column)
    whole = (sum(shape[0] for _, _, shape, _ in column), *shape[1:])
    tensor = ResultTensor(name, datatype, whole, sum(sizes), sizes if datatype == "BYTES" else ())
    return tensor, b"".join(data for _, _, _, data in column)


def compute(application: str, shape: RequestShape, parts):
    """Yield the outputs of an application for the inputs of one query.

    ``numbers``: y = 2x and n = the row's sum; ``words``: upper case; ``every``: each input as it came; ``nan``: y is
    not a number.
    """
    inputs = {h.name: (h, part) for h, part in zip(shape.inputs, parts, strict=True)}
    if application == "words":
        header, data = inputs["text"]
        out, offset = b"", 0
        while offset < len(data):
            (size,) = struct.unpack_from("<I", data, offset)
            out += struct.pack("<I", size) + bytes(data[offset + 4 : offset + 4 + size]).upper()
            offset += 4 + size
        yield "upper", "BYTES", header.shape, out
    elif application == "every":
        for name, (header, data) in inputs.items():
            yield "out_" + name, header.datatype, header.shape, bytes(data)
    else:
        header, data = inputs["x"]
        x = np.frombuffer(data, "<f4").reshape(header.shape)
        y = x * np.float32("nan") if application == "nan" else x * 2
        # In another order than the signature's: the gateway goes by names.
        yield "n", "INT64", (header.shape[0],), np.floor(np.nan_to_num(x).sum(axis=1)).astype("<i8").tobytes()
        yield "y", "FP32", header.shape, y.astype("<f4").tobytes()


def report(event: str, **fields) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


async def main(endpoint: str, name: str) -> None:
    device = Device(name, endpoint)
    loop = asyncio.get_running_loop()
    await loop.create_unix_server(
        lambda: FrameConnection(ToExecutor, device.received, device.lost), endpoint.removeprefix("unix:")
    )
    report("listening")
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        device.command(line.decode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
