"""A bare echo over gRPC, the yardstick of the library: ``python -m benchmarks.query.bare_grpc PORT ANSWER_BYTES``.

grpc.aio on uvloop and nothing else, messages left as bytes: what a query takes here is what the usual server takes for
gRPC alone on this machine at this moment. (The gateway does without it: docs/decisions/0017-grpc-over-own-http2.md.)
"""

from __future__ import annotations

import sys

import grpc
import grpc.aio
import uvloop


class Echo(grpc.GenericRpcHandler):
    """Answers each call with so many bytes of its message's end."""

    def __init__(self, size: int):
        async def answer(message: bytes, _context) -> bytes:
            return message[-size:]

        self._handler = grpc.unary_unary_rpc_method_handler(answer)

    def service(self, _details) -> grpc.RpcMethodHandler:
        return self._handler


async def serve(port: int, size: int) -> None:
    server = grpc.aio.server(handlers=[Echo(size)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
