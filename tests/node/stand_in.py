"""A small real executor process for tests of the daemon.

It speaks frames over the device's socket, and loads no model.

It tells what it was asked by writing to ``<socket>.log`` (a line each), and misbehaves on request: a variant named
``hang`` is measured without an end, ``crash`` kills the process, ``fail`` fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

import msgspec

from workers import identity
from workers.protocol import control, frames
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.specs import DeviceInfo, DeviceState, DeviceStats, ProfilePoint


class StandIn:
    def __init__(self, device: DeviceInfo, path: Path):
        self.device = device
        self.log = path.with_suffix(".log")
        self.connections: list[FrameConnection] = []
        self.plan = 0
        self.warm: tuple[int, ...] = ()

    def note(self, line: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{os.getpid()} {line}\n")

    def state(self) -> frames.StateReport:
        return frames.StateReport(
            state=DeviceState(device=self.device.id, state="up", plan_version=self.plan, warm=self.warm)
        )

    def received(self, connection: FrameConnection, frame: frames.Frame, _body: memoryview) -> None:
        match frame:
            case frames.Hello(role="node"):
                self.note(f"hello {frame.name}")
                self.connections.append(connection)
                connection.send(identity.of(self.device))
                connection.send(self.state())
            case frames.Apply():
                sizes = {digest[:6]: Path(path).stat().st_size for digest, path in sorted(frame.paths.items())}
                self.plan = frame.plan_version
                self.warm = tuple(resident.variant.id for resident in frame.plan.residents)
                self.note(f"apply {self.plan} {list(self.warm)} {sizes}")
                connection.send(self.state())
                device = self.device.id
                overload = control.Overload(device=device, application="digits", arrived=10, refused=4)
                connection.send(frames.Relay(overload))
                connection.send(frames.Relay(control.Drift(device=device, variant=7, ratio=1.5)))
            case frames.Measure():
                self.measure(connection, frame)
            case frames.MeasureCancel():
                self.note(f"cancel {frame.job}")
            case frames.MetricsRequest():
                text = "# HELP nereus_batches_total Batches.\n# TYPE nereus_batches_total counter\n"
                text += f'nereus_batches_total{{variant="a"}} {os.getpid()}\n'
                connection.send(frames.Metrics(text=text))

    def measure(self, connection: FrameConnection, frame: frames.Measure) -> None:
        order = frame.order
        self.note(f"measure {order.job} {order.variant.name} {Path(frame.path).stat().st_size}")

        def report(message: control.FromMember) -> None:
            connection.send(frames.Relay(message))

        point = ProfilePoint(batch=1, p50_s=0.001, p95_s=0.002, mean_s=0.001, samples=5)
        report(control.ProfileProgress(job=order.job, phase="measuring", done=0.5, points=(point,)))
        match order.variant.name:
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "fail":
                report(control.ProfileFailed(job=order.job, message="no such operator"))
            case "hang":
                pass
            case _:
                rows = Path(frame.validation_path).stat().st_size if frame.validation_path else 0
                measured = {"points": (point,), "accuracy": 90.0, "validated_rows": rows}
                report(control.ProfileDone(job=order.job, load_s=0.1, memory_bytes=1000, **measured))

    async def tell_seconds(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            for connection in self.connections:
                connection.send(frames.StatsReport(stats=DeviceStats(self.device.id, 0.5, 0.0, 0, 1, self.plan)))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", type=Path, required=True)
    parser.add_argument("--never-listen", action="store_true")
    parser.add_argument("--deaf-to-term", action="store_true")
    parser.add_argument("--exit-at-once", action="store_true")
    arguments = parser.parse_args()
    if arguments.exit_at_once:
        os._exit(3)
    if arguments.deaf_to_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    device = msgspec.json.decode(arguments.device.read_bytes(), type=DeviceInfo)
    path = Path(device.endpoint.removeprefix("unix:"))
    stand_in = StandIn(device, path)
    stand_in.note("started")
    if not arguments.never_listen:
        await asyncio.get_running_loop().create_unix_server(
            lambda: FrameConnection(frames.ToExecutor, stand_in.received, lambda *_: None), path
        )
    await stand_in.tell_seconds()


if __name__ == "__main__":
    asyncio.run(main())
