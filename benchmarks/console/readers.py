"""Open consoles, as a process of their own.

    python -m benchmarks.console.readers URL COOKIE ORIGIN COUNT SILENT

COUNT websockets as the overview opens them, each of which reads all that comes, and SILENT ones that never read. A
line on the standard input ends it; then it prints JSON: messages, bytes and gateways' seconds of the readers, those
that were missed (a second that another reader got and this one did not), and which silent ones were closed.
"""

from __future__ import annotations

import asyncio
import json
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

#: what the overview asks for
PATH = "/ws/console/live/"


class Reader:
    """One console."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.seconds: set[tuple[str, int]] = set()
        self.closed = ""

    async def run(self, url: str, headers: dict[str, str]) -> None:
        async with connect(url, additional_headers=headers, max_size=2**26, proxy=None) as socket:
            try:
                async for text in socket:
                    self._read(text)
            except ConnectionClosed as error:
                self.closed = str(error)

    def _read(self, text: str) -> None:
        self.messages += 1
        self.bytes += len(text)
        message = json.loads(text)
        events = message["data"] if message["event"] == "events" else [message]
        self.seconds |= {(each["data"]["gateway"], each["data"]["t"]) for each in events if "gateway" in each["event"]}

    def missed(self, known: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """Seconds that other readers got and this one did not, between its first and last."""
        if not self.seconds:
            return known
        first, last = min(t for _, t in self.seconds), max(t for _, t in self.seconds)
        return {each for each in known if first < each[1] < last} - self.seconds


async def silent(url: str, headers: dict[str, str], closed: list[str]) -> None:
    """A console that opens and never reads: its window and the kernel's buffers fill."""
    async with connect(url, additional_headers=headers, max_size=2**26, max_queue=1, proxy=None) as socket:
        socket.transport.pause_reading()
        try:
            await socket.wait_closed()
        finally:
            closed.append(str(socket.close_code))


async def main(url: str, cookie: str, origin: str, count: int, silents: int) -> dict:
    """Until a line comes on the standard input."""
    headers = {"Cookie": cookie, "Origin": origin}
    readers, closed = [Reader() for _ in range(count)], []
    tasks = [asyncio.create_task(reader.run(url, headers)) for reader in readers]
    tasks += [asyncio.create_task(silent(url, headers, closed)) for _ in range(silents)]
    await asyncio.to_thread(sys.stdin.readline)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return figures(readers) | {"silent_closed": closed}


def figures(readers: list[Reader]) -> dict:
    """Sums, and seconds that a reader missed."""
    known = {each for reader in readers for each in reader.seconds}
    return {
        "readers": len(readers),
        "messages": sum(reader.messages for reader in readers),
        "bytes": sum(reader.bytes for reader in readers),
        "seconds": len(known),
        "missed": sum(len(reader.missed(known)) for reader in readers),
        "closed": [reader.closed for reader in readers if reader.closed],
    }


if __name__ == "__main__":
    asked = sys.argv[1:]
    print(json.dumps(asyncio.run(main(asked[0], asked[1], asked[2], int(asked[3]), int(asked[4])))))
