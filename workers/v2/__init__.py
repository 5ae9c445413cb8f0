"""V2 queries and responses (Open Inference Protocol), over HTTP and gRPC. Pure.

:mod:`.query` checks queries, however they are spelled. :mod:`.http` and :mod:`.grpc` parse and render the two
spellings; their ``_memory`` modules recognise queries that are spelled as earlier ones, and their ``_template`` modules
render the common part of responses once. Entry points: ``http_memory.HttpReader`` and
``grpc_memory.GrpcMemory``. Imports ``workers.protocol`` only.
"""
