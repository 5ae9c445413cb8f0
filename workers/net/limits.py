"""Every limit and time limit of the protocols, in one place.

Each server takes one of these objects. Names end in their unit: ``_bytes``, ``_s`` (seconds), ``_bytes_per_s``;
names without one count things. A default is a value that honest clients do not meet; fields without a default depend
on the application.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: bytes up to which a copy costs less than a view
COPY_BYTES = 4096
#: bytes up to which joining the pieces of a response costs less than a write of several buffers
JOIN_BYTES = 64 * 1024
#: missing bytes from which on the rest of a body or message is read into memory of its final size
DIRECT_READ_BYTES = 64 * 1024
#: bytes of pipelined HTTP/1.1 requests that are parsed between two looks at how many of them wait
SLICE_BYTES = 16 * 1024
#: pending connections of a listening socket, as many as a burst of clients opens before the event loop accepts
BACKLOG = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Minimum progress of an unfinished body or message.

    It has ``bytes_per_s`` on average over each ``period_s``. Earlier bytes are no credit: a client
    that sent much and then stalls is rejected within two periods.
    """

    period_s: float = 30.0
    bytes_per_s: int = 4096

    def __str__(self) -> str:
        return f"at least {self.bytes_per_s} bytes/s on average over {self.period_s:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalLimits:
    """Limits on the requests of one HTTP/2 connection that come to nothing.

    Such requests end in a reset by either side, or are refused by their headers. Streams that are reset do not count as
    open, so ``streams`` alone does not bound the work that a client causes. Burst and rate are Node's
    (``streamResetBurst``, ``streamResetRate``). An answered request allows another reset: clients whose deadlines pass
    while a server is overloaded are no flood.
    """

    burst: int = 1000
    per_s: float = 33.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsLimits:
    """Limits of TLS handshakes at one listening socket."""

    #: handshakes under way; beyond it the oldest of the host with most of them is closed
    handshakes: int = 512
    #: a handshake from the accepted connection to its last message
    handshake_s: float = 10.0
    #: on closing, the time that a client gets to take the rest and confirm the end
    shutdown_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Http1Limits:
    """Limits of an HTTP/1.1 server."""

    #: one request body
    body_bytes: int
    #: all request bodies that are being read or wait behind other requests, together; and, separately, all responses
    #: that clients have not read, unless there is only one; beyond it the largest connection of the API key (without
    #: one: of the peer address) that holds most is evicted
    buffered_bytes: int
    #: open connections; beyond it the longest idle ones are closed, and without those new ones get status 503
    connections: int = 4096
    #: the same of one peer address, unless that is a loopback address
    address_connections: int = 1024
    #: request line and headers, also trailers, and chunk extensions beside their data: Node's limit
    head_bytes: int = 16 * 1024
    #: headers of a request
    fields: int = 100
    #: pipelined requests that wait; beyond it the rest of a read is parsed once they are answered
    waiting: int = 64
    #: request heads that are remembered by their bytes, and the longest of them: clients repeat theirs
    known_heads: int = 1024
    known_head_bytes: int = 4096
    #: charged for each waiting request on top of its body: about the memory of its head
    waiting_bytes: int = 1024
    #: a request head, from its first byte to its last
    head_s: float = 30.0
    #: an unfinished request without any new bytes
    read_s: float = 30.0
    #: a connection without a request, or with a response that the client does not read
    idle_s: float = 120.0
    #: a request body while it is being read
    body_rate: Rate = field(default_factory=Rate)
    #: bytes of a rejected client are discarded for so long: closing at once would reset the connection, and the client
    #: would never see the response
    linger_s: float = 2.0
    #: on shutdown, wait for requests of connections that were just opened or have begun to send
    last_requests_s: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Limits:
    """Limits of an HTTP/2 server."""

    #: open connections; beyond it the longest idle ones are closed, and without those new ones get GOAWAY with
    #: ENHANCE_YOUR_CALM
    connections: int = 4096
    #: the same of one peer address, unless that is a loopback address
    address_connections: int = 1024
    #: open streams of one connection
    streams: int = 1024
    #: flow control: bytes that a client may send before the stream or the connection has consumed them
    stream_window_bytes: int = 1024 * 1024
    connection_window_bytes: int = 8 * 1024 * 1024
    #: one DATA frame, in either direction; larger pieces would sit in socket buffers, which are not counted
    data_frame_bytes: int = 256 * 1024
    #: a header list, as RFC 9113 counts it (names, values and 32 bytes a field), and a header block: gRPC's own limit
    header_bytes: int = 8 * 1024
    #: fields of a header list
    fields: int = 100
    #: header blocks of accepted requests that are remembered for each connection, and the longest of them
    known_blocks: int = 8
    known_block_bytes: int = 1024
    #: the header list behind a remembered block
    known_list_bytes: int = 1024
    refusals: RefusalLimits = field(default_factory=RefusalLimits)
    #: frames a second and connection other than requests and their data: beyond it is a flood
    control_frames_per_s: int = 20_000
    #: requests of one read that start before other connections get the event loop
    requests_per_read: int = 256
    #: time for unknown header blocks of one read, and the part of a server's time for connections that exceed it
    turn_s: float = 0.002
    turns_share: float = 0.2
    #: the connection preface with SETTINGS, or a header block in several frames
    handshake_s: float = 20.0
    #: silence after which a client gets a PING, and then the time to send anything at all
    keepalive_s: float = 120.0
    keepalive_timeout_s: float = 20.0
    #: bytes of a rejected client are discarded for so long, as with :attr:`Http1Limits.linger_s`
    linger_s: float = 2.0
    #: the time that a client gets to close a connection whose last request was answered
    goaway_s: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    """Limits of a gRPC server on top of those of its HTTP/2 connections."""

    #: one message, compressed and decompressed
    message_bytes: int
    #: all messages that are being read, together; and, separately, all responses that clients have not read; beyond it
    #: calls of the largest connection of the API key that holds most are evicted
    buffered_bytes: int
    http2: Http2Limits = field(default_factory=Http2Limits)
    #: calls of identified clients in progress, a twentieth of them at most on one connection (``http2.streams``)
    calls: int = 20_000
    #: public calls in progress: honest ones last no longer than a frame takes to arrive, or wait for further responses
    public_calls: int = 1000
    #: the message of a public call, and the time that it and the end of the call may take
    public_message_bytes: int = 64
    public_call_s: float = 10.0
    #: an unfinished message without any new bytes
    read_s: float = 30.0
    #: a response of which the client reads nothing
    write_s: float = 120.0
    #: the request of a unary call, from the call's start to the last byte
    message_s: float = 600.0
    #: an unfinished message
    message_rate: Rate = field(default_factory=Rate)
    #: characters of a status message
    status_chars: int = 4096
    #: on shutdown, the time that clients get to read that their connection ends, while their calls are accepted
    announce_s: float = 1.0
