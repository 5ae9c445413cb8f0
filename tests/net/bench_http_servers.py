"""Requests/s and server CPU time per request: the gateway's HTTP edge against a raw ASGI callable on uvicorn.

    python -m tests.net.bench_http_servers

Both run uvloop and httptools, read a 400-byte body, wait for an answer that comes from another callback (as an
executor's does), notice a client that goes away, and answer 300 bytes. The load comes from one other process over 8
kept-alive connections.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import time

BODY = b"x" * 400
ANSWER = b"y" * 300
REQUESTS = 12_000


def later(call) -> None:
    asyncio.get_running_loop().call_soon(call)


async def asgi(scope, receive, send) -> None:
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message.get("more_body"):
            break
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    gone = asyncio.ensure_future(receive())
    later(lambda: done.set_result(ANSWER))
    await asyncio.wait((done, gone), return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"300")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": done.result()})


def serve(kind: str, port: int) -> None:
    import uvloop

    if kind == "uvicorn":
        import uvicorn

        config = uvicorn.Config(asgi, port=port, loop="uvloop", http="httptools", lifespan="off", log_level="error")
        config.access_log = False
        uvicorn.Server(config).run()
        return

    from workers.net.http1 import HttpServer
    from workers.net.limits import Http1Limits

    class Handler:
        def preflight(self, head) -> None:
            return None

        def handle(self, exchange) -> None:
            exchange.waiter = ANSWER
            later(lambda: exchange.respond(200, [(b"content-type", b"application/json")], [ANSWER]))

    async def run() -> None:
        server = HttpServer(Handler(), Http1Limits(body_bytes=1 << 20, buffered_bytes=1 << 30))
        await server.start("127.0.0.1", port)
        await asyncio.Event().wait()

    uvloop.run(run())


async def load(port: int, requests: int) -> float:
    request = b"POST /v2/models/a/infer HTTP/1.1\r\nhost: x\r\nauthorization: Bearer abcdefgh\r\n"
    request += b"content-type: application/json\r\ncontent-length: 400\r\n\r\n" + BODY

    async def client(count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(count):
            writer.write(request)
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(len(ANSWER))
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(client(requests // 8) for _ in range(8)))
    return time.perf_counter() - started


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    import uvloop

    for kind in ("uvicorn", "http1", "uvicorn", "http1"):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen([sys.executable, "-m", __spec__.name, kind, str(port)])
        try:
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            uvloop.run(load(port, 1000))
            before = cpu_s(process.pid)
            wall = uvloop.run(load(port, REQUESTS))
            used = cpu_s(process.pid) - before
            print(f"{kind:8} {REQUESTS / wall:7.0f} requests/s  {used / REQUESTS * 1e6:5.0f} us server CPU a request")
        finally:
            process.kill()
            process.wait()
    print(f"client CPU {resource.getrusage(resource.RUSAGE_SELF).ru_utime:.1f} s, cores {os.cpu_count()}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        serve(sys.argv[1], int(sys.argv[2]))
    else:
        main()
