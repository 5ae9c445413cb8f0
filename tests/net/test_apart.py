"""``workers.net`` serves where every other module of the product is out of reach."""

from __future__ import annotations

import subprocess
import sys

import tests

SERVES = """
import asyncio, importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        ours = name.partition(".")[0] in "workers scheduler registry console appliance benchmarks tests".split()
        if ours and name != "workers" and not (name + ".").startswith("workers.net."):
            raise ImportError(f"{name}: out of reach")

sys.meta_path.insert(0, Blocked())
import workers.net

for module in pkgutil.walk_packages(workers.net.__path__, "workers.net."):
    importlib.import_module(module.name)
for name in ("django", "structlog", "google.protobuf", "grpc", "uvloop"):
    assert name not in sys.modules, name

from workers.net.grpc import Admitted, GrpcServer
from workers.net.http1 import HttpServer
from workers.net.limits import GrpcLimits, Http1Limits

class Greeter:
    streams = False
    preflight = disconnected = rejected = stop = lambda self, *given: None
    def handle(self, exchange): exchange.respond(200, [], [b"hello"])
    def render_error(self, status, message): return status, [], [message.encode()]
    def admit(self, headers): return Admitted(None, self, client="anyone")
    def current(self, admitted): return True
    def message(self, call, data): call.settle(data)

async def main():
    greeter = Greeter()
    http = HttpServer(greeter, Http1Limits(body_bytes=1000, buffered_bytes=1000))
    grpc = GrpcServer(greeter, GrpcLimits(message_bytes=1000, buffered_bytes=1000))
    for server in (http, grpc):
        await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(b"GET / HTTP/1.0\\r\\n\\r\\n")
    assert (await reader.read()).endswith(b"hello")
    for server in (http, grpc):
        await server.drain(1)
    http.close()
    await grpc.close()

asyncio.run(main())
print("served")
"""


def test_it_serves_without_any_other_module_of_ours():
    root = tests.__path__[0] + "/.."
    done = subprocess.run([sys.executable, "-c", SERVES], cwd=root, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("served\n", 0), done.stderr
