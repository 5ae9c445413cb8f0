"""V2 queries and responses (Open Inference Protocol), over HTTP and gRPC. Pure.

:mod:`.query` checks queries of both protocols. :mod:`.http` and :mod:`.grpc` parse and render their encodings; their
``_memory`` modules recognise queries that are encoded as earlier ones were, and their ``_template`` modules
render the common part of responses once. Entry points: ``http_memory.HttpReader`` and
``grpc_memory.GrpcMemory``. Imports ``workers.protocol`` only.
"""
