"""HTTP/1.1, HTTP/2 and gRPC servers for asyncio, usable apart from the product: see README.md.

Entry points: :class:`~.http1.HttpServer` and :class:`~.grpc.GrpcServer`, with their limits in :mod:`~.limits`. Imports
nothing of ours from outside of this folder.
"""
