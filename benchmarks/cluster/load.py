"""``python -m benchmarks.cluster.load``: a steady load on several gateways, as clients with several addresses send it.

Standard input: one line of JSON (:class:`Work`). Each query is a line of JSON on standard output, an :class:`Answer`,
with times of the monotonic clock, which all namespaces of a machine share. It ends with standard input.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time

import httpx
import msgspec


class Work(msgspec.Struct):
    """``rate``: queries a second in all; ``bodies``: by application."""

    urls: list[str]
    key: str
    rate: float
    bodies: dict[str, dict]
    timeout_s: float = 10.0


class Answer(msgspec.Struct):
    """``first``: the status that the first gateway gave, 0: none; ``last``: after the other one was asked, where that
    was needed. ``gateway``: the place of the first."""

    sent: float
    ended: float
    gateway: int
    first: int
    last: int
    variant: str = ""
    why: str = ""


async def _ask(session: httpx.AsyncClient, url: str, body: bytes) -> tuple[int, str, str]:
    try:
        answer = await session.post(url, content=body)
    except httpx.TransportError as error:
        return 0, "", repr(error)
    told = answer.json()
    return answer.status_code, str(told.get("model_version", "")), str(told.get("error", ""))


async def _query(session: httpx.AsyncClient, work: Work, number: int, application: str, body: bytes) -> None:
    place, sent = number % len(work.urls), time.monotonic()
    path = f"/v2/models/{application}/infer"
    status, variant, why = await _ask(session, work.urls[place] + path, body)
    last = status
    if status != 200:
        last, variant, _ = await _ask(session, work.urls[(place + 1) % len(work.urls)] + path, body)
    print(msgspec.json.encode(Answer(sent, time.monotonic(), place, status, last, variant, why)).decode(), flush=True)


async def main() -> None:
    """Send until told to stop."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**22)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    work = msgspec.json.decode(await reader.readline(), type=Work)
    bodies = [(name, msgspec.json.encode(body)) for name, body in work.bodies.items()]
    stopping = asyncio.create_task(reader.read())
    headers = {"Authorization": f"Bearer {work.key}", "Content-Type": "application/json"}
    running: set[asyncio.Task] = set()
    async with httpx.AsyncClient(timeout=work.timeout_s, headers=headers, trust_env=False) as session:
        due = time.monotonic()
        for number in itertools.count():
            if stopping.done():
                break
            name, body = bodies[number // len(work.urls) % len(bodies)]
            task = asyncio.create_task(_query(session, work, number, name, body))
            running.add(task)
            task.add_done_callback(running.discard)
            due += 1 / work.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        await asyncio.gather(*running)


if __name__ == "__main__":
    asyncio.run(main())
