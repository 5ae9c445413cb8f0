"""Processes of tests, forked from one that has imported what they need.

A start takes milliseconds instead of a second.

A forked process runs the program that ``python ARGUMENTS`` would run (``-m MODULE``, ``-c CODE`` or a script), in the
given environment, folder and streams, with the program's real main function. Tests of command lines, of imports and of
memory start Python itself.

    python -m tests.forked SOCKET MODULE...

is the process that others are forked from. It imports the modules and starts no thread.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
#: bytes of a program's arguments and environment at most
_REQUEST = 1 << 20
#: keeps libraries from starting threads when they are imported
_NO_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
#: what gateways, executors and the tests' own devices import
MEMBERS = (
    "workers.gateway.serving",
    "workers.executor.process",
    "workers.executor.device",
    "workers.executor.measuring",
    "workers.executor.runtime",
    "workers.executor.server",
    "workers.executor.watchdog",
)
#: what Django's commands import before they read the settings
COMMANDS = (
    "django.core.management.commands.migrate",
    "django.core.management.commands.shell",
    "django.db.backends.postgresql.psycopg_any",
    "django.db.backends.sqlite3.base",
    "django.contrib.admin.sites",
    "django.test.utils",
    "celery.app.amqp",
    "celery.app.base",
    "celery.app.task",
    "cryptography.x509",
    "drf_spectacular",
    "redis.asyncio",
    "rest_framework.compat",
    "structlog",
    "workers.protocol.control",
    "workers.protocol.datatypes",
    "workers.settings",
    "workers.trust.server",
)


class ForkedProcess:
    """A process of a :class:`ForkServer`, used like a :class:`subprocess.Popen`, with the pipes asked for."""

    def __init__(self, pid: int, ended: IO[bytes], streams: Sequence[IO | None]):
        self.pid = pid
        self.stdin, self.stdout, self.stderr = streams
        self._ended = ended
        self._lock = threading.Lock()
        self._code: int | None = None

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *_error) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    @property
    def returncode(self) -> int | None:
        """The exit status, negative: the signal. None: it runs."""
        return self.poll()

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its exit status; :class:`subprocess.TimeoutExpired` after ``timeout`` seconds."""
        ending = select.poll()
        ending.register(self._ended, select.POLLIN)
        if not ending.poll(None if timeout is None else 1000 * timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        with self._lock:
            # Any thread may be the first to read; for the others the pipe is at its end then.
            if self._code is None:
                status = self._ended.read(16)
                # Without one the server ended, which kills what it forked.
                self._code = os.waitstatus_to_exitcode(int(status)) if status else -signal.SIGKILL
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that others are forked from, started on the first request.

    Args:
        modules: those that it imports. They see its own environment, not a forked process's.
        environment: its own (default: this process's).
    """

    def __init__(self, *modules: str, environment: Mapping[str, str] | None = None):
        self._modules = modules
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int:
        """The id of the process, which is the parent of those that it forks."""
        with self._lock:
            self._begin()
        return self._process.pid

    def start(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        stdin: int | IO | None = None,
        stdout: int | IO | None = None,
        stderr: int | IO | None = None,
        text: bool = False,
    ) -> ForkedProcess:
        """Run ``python ARGUMENTS`` in the repository's root.

        Args:
            env: its environment (default: this process's).
            stdin, stdout, stderr: as of :class:`subprocess.Popen`: ``PIPE``, ``DEVNULL``, a file, or None for this
                process's own; ``STDOUT`` for standard error.
            text: pipes are of text.
        """
        with contextlib.ExitStack() as given:
            theirs, ours = [], []
            for number, stream in enumerate((stdin, stdout, stderr)):
                if stream == subprocess.PIPE:
                    ends = os.pipe()
                    own, other = (ends[1], ends[0]) if number == 0 else ends
                    ours.append(open(own, ("w" if number == 0 else "r") + ("" if text else "b")))  # noqa: SIM115
                    given.callback(os.close, other)
                else:
                    ours.append(None)
                    if stream == subprocess.DEVNULL:
                        other = os.open(os.devnull, os.O_RDWR)
                        given.callback(os.close, other)
                    elif stream == subprocess.STDOUT:
                        other = theirs[1]
                    else:
                        other = number if stream is None else stream if isinstance(stream, int) else stream.fileno()
                theirs.append(other)
            ended, report = os.pipe()
            given.callback(os.close, report)
            pid = self._ask([arguments, dict(os.environ if env is None else env)], [*theirs, report])
            return ForkedProcess(pid, open(ended, "rb", buffering=0), ours)

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            code = self.start(*arguments, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err).wait()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read(), err.read())

    def _ask(self, request: list, descriptors: list[int]) -> int:
        with self._lock:
            self._begin()
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            answer = self._socket.recv(64)
        assert answer, f"the process to fork from ended: {self._process.wait()}"
        return int(answer)

    def _begin(self) -> None:
        if self._process is not None:
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno()), *self._modules],
                cwd=ROOT,
                env={**(self._environment or os.environ), **_NO_THREADS},
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def close(self) -> None:
        if self._process is not None:
            self._socket.close()
            self._process.wait()
            self._process = None
            atexit.unregister(self.close)


@functools.cache
def of_members() -> ForkServer:
    """The server of gateways, executors and devices, one for all tests here."""
    return ForkServer(*MEMBERS)


@functools.cache
def of_commands() -> ForkServer:
    """The server of ``manage.py``'s commands, without settings of this process."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("NEREUS_", "DJANGO_"))}
    return ForkServer(*COMMANDS, environment=bare)


# --- in the process that others are forked from -----------------------------------------------------------------------


def _serve(requests: socket.socket) -> list | None:
    """Fork a process for each request, which gets its arguments; None once the other side closes."""
    running: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor in running:
                poll.unregister(descriptor)
                pid, report = running.pop(descriptor)
                status = os.waitpid(pid, 0)[1]
                with contextlib.suppress(BrokenPipeError):
                    os.write(report, str(status).encode())
                os.close(report)
                os.close(descriptor)
                continue
            request, descriptors, _, _ = socket.recv_fds(requests, _REQUEST, 4)
            if not request:
                for pid, _ in running.values():
                    os.kill(pid, signal.SIGKILL)
                return None
            pid = os.fork()
            if pid == 0:
                return _become(json.loads(request), descriptors)
            *streams, report = descriptors
            for stream in streams:
                os.close(stream)
            watched = os.pidfd_open(pid)
            running[watched] = pid, report
            poll.register(watched, select.POLLIN)
            requests.send(str(pid).encode())


def _become(request: list, descriptors: list[int]) -> list:
    arguments, environment = request
    for number, stream in enumerate(descriptors[:3]):
        os.dup2(stream, number)
    # Those of the requests, and the ends of other processes.
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    os.environ.clear()
    os.environ.update(environment)
    return arguments


def _run(arguments: list[str]) -> None:
    kind, *rest = arguments
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        runpy.run_path(kind, run_name="__main__")


def main() -> None:
    """Import the modules, then fork; a forked process leaves here to run its program."""
    descriptor, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"importing {', '.join(modules)} started threads: only one of them would be forked"
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=int(descriptor))
    arguments = _serve(requests)
    # The descriptor is closed in a forked process, and its number may be another file's.
    requests.detach()
    if arguments is not None:
        _run(arguments)


if __name__ == "__main__":
    main()
