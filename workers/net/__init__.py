"""HTTP/1.1, HTTP/2 and gRPC servers for asyncio, usable apart from the product.

See README.md. Entry points: :class:`~.http1.HttpServer` and :class:`~.grpc.GrpcServer`, with their limits in
:mod:`~.limits`. Imports nothing of Nereus outside of this folder.
"""
