"""The supervisor on real processes: order, restarts, bounded stops, and that a kill leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from appliance.local import guard as guard_process
from appliance.local import proc
from appliance.local.preconditions import StartError, check_ports
from appliance.local.processes import Guard, Liveness, SupervisedService
from appliance.local.services import control_plane, data_plane, demo, stop_order
from appliance.local.supervisor import Supervisor
from tests.running import ROOT, eventually, free_ports
from tools.waiting import eventually_async
from workers.settings import Settings

#: writes its name, and the time of SIGTERM; "stubborn" ones ignore SIGTERM
SLEEPER = """
import signal, sys, time, pathlib
name, folder, stubborn = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3] == "1"
def stop(*_):
    with open(folder / "stops", "a") as file: file.write(name + "\\n")
    if not stubborn: sys.exit(0)
signal.signal(signal.SIGTERM, stop)
(folder / f"{name}.up").touch()
while True: time.sleep(0.05)
"""
#: a process that ignores SIGTERM, in a session of its own and with a process file, as an executor
EXECUTOR = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork(): os._exit(0)
os.setsid()
started = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()} {started}\\n")
time.sleep(600)
"""


def sleeper(folder: Path, name: str, stubborn: bool = False, stop_s: float = 60.0, **fields) -> SupervisedService:
    async def up() -> str | None:
        return None if (folder / f"{name}.up").exists() else "not up"

    command = [sys.executable, "-c", SLEEPER, name, str(folder), "1" if stubborn else "0"]
    fields.setdefault("alive", Liveness(up, every_s=0.1))
    return SupervisedService(name, command, ready_s=120, stop_s=stop_s, **fields)


def program(name: str, code: str, **fields) -> SupervisedService:
    return SupervisedService(name, [sys.executable, "-c", textwrap.dedent(code)], **fields)


def alive(pid: int) -> bool:
    return proc.state(pid) not in ("", "Z")


@contextlib.asynccontextmanager
async def supervised(folder: Path, *services: SupervisedService) -> AsyncIterator[tuple[Supervisor, list[str]]]:
    lines: list[str] = []
    supervisor = Supervisor(folder, lines.append)
    supervisor.guard.start()
    supervisor.keep(services)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, lines
    finally:
        supervisor.ask_to_stop()
        await running
        await supervisor.stop()


async def until(what) -> None:
    await eventually_async(lambda: what())


async def up(*services: SupervisedService) -> None:
    async with asyncio.timeout(120):
        for service in services:
            await service.up.wait()


async def test_services_stop_in_order_askers_before_answerers(tmp_path):
    services = [sleeper(tmp_path, name) for name in ("node", "gateway", "gateway-2", "redis", "web", "celery", "load")]
    async with supervised(tmp_path, *services):
        await up(*services)
    stops = (tmp_path / "stops").read_text().split()
    # Gateways stop together, in whichever order.
    kinds = [name.partition("-")[0] for name in stops]
    assert kinds == ["load", "gateway", "gateway", "node", "celery", "web", "redis"]
    assert not any(service.running for service in services)


async def test_a_service_that_ignores_sigterm_is_killed_when_its_time_is_over(tmp_path):
    service = sleeper(tmp_path, "web", stubborn=True, stop_s=0.3)
    async with supervised(tmp_path, service):
        await up(service)
    assert service.process.returncode == -signal.SIGKILL


async def test_a_service_that_dies_is_started_again(tmp_path):
    service = sleeper(tmp_path, "node")
    async with supervised(tmp_path, service) as (_, lines):
        await up(service)
        first = service.process.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: service.running and service.process.pid != first)
        await up(service)
    assert lines == [], "a first failure needs nobody"


async def test_a_stopped_process_is_replaced(tmp_path):
    # Without a probe, too.
    service = sleeper(tmp_path, "celery", alive=None)
    async with supervised(tmp_path, service):
        await up(service)
        first = service.process.pid
        os.kill(first, signal.SIGSTOP)
        await until(lambda: service.running and service.process.pid != first)
        assert not alive(first)


async def test_a_process_that_no_longer_answers_is_replaced(tmp_path):
    answers = {"it": None}

    async def probe() -> str | None:
        return answers["it"]

    service = sleeper(tmp_path, "gateway", alive=Liveness(probe, every_s=0.1, timeout_s=0.5))
    async with supervised(tmp_path, service) as (_, lines):
        await up(service)
        first = service.process.pid
        answers["it"] = "no pong"
        await until(lambda: not alive(first))
        answers["it"] = None
        await until(lambda: service.running and service.process.pid != first)
        await up(service)
        assert lines == []


async def test_a_process_that_waits_for_the_processor_does_not_hang(tmp_path):
    """The only core that it may use belongs to another, so its answers are late for a while."""
    calls = 0

    async def probe() -> str | None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.4)
        return "late" if calls > 1 else None

    core = str(min(os.sched_getaffinity(0)))
    busy = "while True: pass"
    service = SupervisedService(
        "gateway",
        ["taskset", "-c", core, "nice", "-n", "19", sys.executable, "-c", busy],
        alive=Liveness(probe, every_s=0.05, timeout_s=1.0),
    )
    # In sessions of their own: where the kernel groups these, each has the same part of the core.
    rivals = [
        subprocess.Popen(["taskset", "-c", core, sys.executable, "-c", busy], start_new_session=True) for _ in range(3)
    ]
    try:
        async with supervised(tmp_path, service):
            await up(service)
            first = service.process.pid
            await until(lambda: calls >= 8)
            assert alive(first), "after more looks than would replace one that hangs"
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()


def test_a_machine_that_was_asleep_restarts_nothing(tmp_path):
    """Supervisor and service stand still together, for longer than a service may."""
    script = textwrap.dedent(
        f"""
        import asyncio, pathlib, sys
        from appliance.local.processes import Liveness, SupervisedService
        from appliance.local.supervisor import Supervisor
        from workers import log
        log.configure("supervisor")
        async def main():
            folder = pathlib.Path({str(tmp_path)!r})
            echo = "import socketserver as s; h = type('H', (s.BaseRequestHandler,), " \\
                "{{'handle': lambda self: self.request.sendall(b'.')}}); " \\
                f"s.UnixStreamServer('{{folder}}/it.sock', h).serve_forever()"
            async def probe():
                reader, writer = await asyncio.open_unix_connection(str(folder / "it.sock"))
                try:
                    return None if await reader.read(1) else "nothing"
                finally:
                    writer.close()
            service = SupervisedService("web", [sys.executable, "-c", echo], alive=Liveness(probe, 0.3, 0.5))
            supervisor = Supervisor(folder)
            supervisor.guard.start()
            supervisor.keep([service])
            await service.up.wait()
            print(service.process.pid, flush=True)
            await supervisor.run()
        asyncio.run(main())
        """
    )
    supervisor = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        service = int(supervisor.stdout.readline())
        for pid in (supervisor.pid, service):
            os.kill(pid, signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            supervisor.wait(2)
        # In this order: the supervisor would replace one that is stopped.
        for pid in (service, supervisor.pid):
            os.kill(pid, signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            supervisor.wait(2)
        assert alive(service)
    finally:
        supervisor.kill()
        supervisor.wait()
    eventually(lambda: not alive(service))


async def test_a_start_that_fails_is_reported_once_and_tried_again(tmp_path):
    marker = tmp_path / "repaired"
    broken = program(
        "redis",
        f"""
        import pathlib, sys, time
        if not pathlib.Path({str(marker)!r}).exists(): sys.exit(7)
        time.sleep(600)
        """,
    )
    waiting = sleeper(tmp_path, "web", after=("redis",))

    def repair() -> str:
        marker.touch()
        return "moved the snapshot aside"

    broken.repair = repair

    async def running() -> str | None:
        return None if marker.exists() else "not yet"

    broken.alive = Liveness(running, every_s=0.1)
    serving = sleeper(tmp_path, "gateway")
    async with supervised(tmp_path, broken, serving, waiting) as (_, lines):
        await up(serving)
        await up(broken, waiting)
    assert [line for line in lines if "ended with status 7" in line] == [
        "redis: ended with status 7; see None. It is tried again, at least every 30 s."
    ]
    assert "redis: moved the snapshot aside." in lines


async def test_what_runs_once_reports_its_lines_and_is_repeated_until_it_succeeds(tmp_path):
    tries = tmp_path / "tries"
    once = program(
        "prepare",
        f"""
        import pathlib, sys
        tries = pathlib.Path({str(tries)!r})
        tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
        if len(tries.read_text()) < 3: print("the database is broken"); sys.exit(1)
        print("first"); print("second")
        """,
        once=True,
    )
    then = sleeper(tmp_path, "web", after=("prepare",))
    async with supervised(tmp_path, once, then) as (_, lines):
        await up(then)
    assert tries.read_text() == "xxx"
    assert lines == ["prepare: the database is broken. It is tried again, at least every 30 s.", "first", "second"]


async def test_a_service_can_be_stopped_while_it_starts(tmp_path):
    async def never() -> str | None:
        return "not yet"

    service = program("web", "import time; time.sleep(600)", alive=Liveness(never))
    async with supervised(tmp_path, service):
        await until(lambda: service.running)
    assert not service.running


async def test_services_stand_behind_serving_and_may_open_many_files(tmp_path):
    shown = tmp_path / "shown"
    code = f"""
    import os, pathlib, time
    pathlib.Path({str(shown)!r}).write_text(f"{{os.nice(0)}} {{os.sched_getscheduler(0)}}\\n")
    time.sleep(600)
    """
    service = program("web", code, nice=7)
    async with supervised(tmp_path, service):
        await until(lambda: shown.exists() and shown.read_text().endswith("\n"))
    assert shown.read_text().split() == [str(min(19, os.nice(0) + 7)), str(os.SCHED_BATCH)]


async def test_executors_outlive_their_daemon_and_end_with_the_supervisor(tmp_path):
    file = tmp_path / "executor-box-cpu0.pid"
    code = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {EXECUTOR!r}, {str(file)!r}])"
    node = program("node", code + "; time.sleep(600)")
    async with supervised(tmp_path, node):
        await until(lambda: file.exists() and file.read_text().endswith("\n"))
        executor = int(file.read_text().split()[0])
        first = node.process.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: node.running and node.process.pid != first)
        assert alive(executor), "it is in a session of its own"
    assert not alive(executor)


async def test_the_supervisor_reaps_what_it_adopted(tmp_path):
    pid = tmp_path / "pid"
    orphan = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid()) + ' '); time.sleep(0.5)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {orphan!r}], start_new_session=True)"
    service = program("node", code + "; import time; time.sleep(600)")
    proc.adopt_orphans()
    try:
        async with supervised(tmp_path, service):
            await until(lambda: pid.exists() and pid.read_text().endswith(" "))
            orphan = Path(f"/proc/{pid.read_text().strip()}")
            os.kill(service.process.pid, signal.SIGKILL)
            await until(lambda: not orphan.exists())
    finally:
        proc.adopt_orphans(False)


async def test_a_service_that_ends_while_it_starts_is_no_orphan(tmp_path, monkeypatch):
    supervisor = Supervisor(tmp_path)
    supervisor.services["web"] = service = program("web", "raise SystemExit(3)")
    create = asyncio.create_subprocess_exec

    async def reaping(*command, **options):
        process = await create(*command, **options)
        # The loop, which would take its status, stands still.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        supervisor._reap()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", reaping)
    await service.start(supervisor.guard)
    assert await service.process.wait() == 3


def test_a_killed_supervisor_takes_its_children_grandchildren_and_executors_along(tmp_path):
    file = tmp_path / "executor-box-cpu0.pid"
    script = textwrap.dedent(
        f"""
        import asyncio, sys, time, pathlib, textwrap
        from appliance.local.processes import SupervisedService
        from appliance.local.supervisor import Supervisor
        parent = '''
        import subprocess, sys, time, signal, pathlib
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stubborn = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", stubborn])
        pathlib.Path({str(tmp_path / "pids")!r}).write_text(str(child.pid))
        time.sleep(600)
        '''
        async def main():
            supervisor = Supervisor(pathlib.Path({str(tmp_path)!r}))
            supervisor.guard.start()
            service = SupervisedService("node", [sys.executable, "-c", textwrap.dedent(parent)])
            await service.start(supervisor.guard)
            print(service.process.pid, flush=True)
            await asyncio.sleep(600)
        asyncio.run(main())
        """
    )
    subprocess.run([sys.executable, "-c", EXECUTOR, str(file)], check=True)
    eventually(lambda: file.exists() and file.read_text().endswith("\n"))
    executor = int(file.read_text().split()[0])
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as bystander:
        # Its number is in a file of an executor that ended long ago.
        (tmp_path / "executor-box-cpu1.pid").write_text(f"{bystander.pid} 1\n")
        supervisor = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        parent = int(supervisor.stdout.readline())
        child = int(eventually(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text()))
        assert alive(parent) and alive(child) and alive(executor)
        supervisor.kill()
        supervisor.wait()
        eventually(lambda: not alive(parent) and not alive(child) and not alive(executor))
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.parametrize("text", ["", "x y", "1", "0 0", "-1 5", "999999999 5", "1 2 3"])
def test_a_process_file_that_makes_no_sense_is_nobody(tmp_path, text):
    (tmp_path / "executor-a.pid").write_text(text)
    assert guard_process.leftover_executors(tmp_path) == []


async def test_a_guard_that_was_killed_gets_a_successor(tmp_path):
    service = sleeper(tmp_path, "web")
    async with supervised(tmp_path, service) as (supervisor, _):
        await up(service)
        first = supervisor.guard.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: supervisor.guard.pid != first)
        assert alive(supervisor.guard.pid)


def test_a_taken_port_is_named_with_its_variable(tmp_path):
    console, http, node, grpc = free_ports(4)
    values = Settings.from_environ(
        {
            "NEREUS_HOME": str(tmp_path),
            "NEREUS_CONSOLE": f"127.0.0.1:{console}",
            "NEREUS_HTTP": f"127.0.0.1:{http}",
            "NEREUS_NODE_HTTP": f"127.0.0.1:{node}",
            "NEREUS_GRPC": f"127.0.0.1:{grpc}",
        }
    )
    check_ports(values)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", http))
        taken.listen()
        with pytest.raises(StartError, match=f"NEREUS_HTTP=127.0.0.1:{http}: another program"):
            check_ports(values)
    with socket.socket() as taken:
        # Another appliance's gateways share their ports, but only among themselves.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", grpc))
        taken.listen()
        with pytest.raises(StartError, match=f"NEREUS_GRPC=127.0.0.1:{grpc}: another program"):
            check_ports(values)


async def test_the_guard_does_nothing_when_all_was_stopped_in_order(tmp_path):
    guard = Guard(tmp_path)
    guard.start()
    service = sleeper(tmp_path, "web")
    await service.start(guard)
    await until((tmp_path / "web.up").exists)
    await service.stop(guard)
    # Were a group left on its list, it would end what has that number now.
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as bystander:
        guard.add(bystander.pid)
        guard.remove(bystander.pid)
        guard.stop()
        assert bystander.poll() is None
        bystander.kill()


async def test_the_times_to_stop_add_up_to_less_than_the_15_s_that_are_promised(tmp_path):
    values = Settings.from_environ({"NEREUS_HOME": str(tmp_path), "NEREUS_GATEWAYS": "2"})
    log = tmp_path / "log"
    every = [*data_plane(values, log), *control_plane(values, log), *demo(log)]
    order = stop_order(every)
    assert sum(map(len, order)) == len(every)
    assert sum(max(service.stop_s for service in group) for group in order) < 15
