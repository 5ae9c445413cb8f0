"""The supervisor on real processes: order, restarts, bounded stops, and nothing left behind by a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from appliance.local.processes import Guard, SupervisedService
from appliance.local.services import load_service, redis_service, services, stop_order
from appliance.local.supervisor import HomeLock, StartError, Stopped, Supervisor, check_ports
from tests.running import ROOT, eventually, free_ports
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


def sleeper(folder: Path, name: str, stubborn: bool = False, stop_s: float = 60.0) -> SupervisedService:
    return SupervisedService(
        name,
        [sys.executable, "-c", SLEEPER, name, str(folder), "1" if stubborn else "0"],
        ready=(folder / f"{name}.up").exists,
        ready_s=120,
        stop_s=stop_s,
    )


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_services_stop_in_order_askers_before_answerers(tmp_path):
    supervisor = Supervisor()
    supervisor.guard.start()
    for name in ("redis", "web", "celery", "node", "gateway", "gateway-2", "load"):
        service = sleeper(tmp_path, name)
        supervisor.start(service)
        supervisor.wait_ready(service)
    supervisor.stop()
    stops = (tmp_path / "stops").read_text().split()
    # Gateways stop together, in whichever order.
    assert [name.partition("-")[0] for name in stops] == [
        "load",
        "gateway",
        "gateway",
        "node",
        "celery",
        "web",
        "redis",
    ]
    assert not any(service.running for service in supervisor.services)


def test_a_service_that_ignores_sigterm_is_killed_when_its_time_is_over(tmp_path):
    guard = Guard()
    guard.start()
    service = sleeper(tmp_path, "web", stubborn=True, stop_s=0.3)
    service.start(guard)
    eventually(service.ready)
    service.stop(guard)
    assert service.process.returncode == -signal.SIGKILL
    guard.stop()


def test_a_service_that_dies_is_started_again(tmp_path):
    supervisor = Supervisor()
    supervisor.guard.start()
    service = sleeper(tmp_path, "node")
    supervisor.start(service)
    supervisor.wait_ready(service)
    first = service.process.pid
    os.kill(first, signal.SIGKILL)

    def stop_once_restarted():
        if service.running and service.process.pid != first:
            supervisor.ask_to_stop()

    supervisor.watch(stop_once_restarted)
    assert service.process.pid != first
    supervisor.stop()


def test_a_start_that_fails_says_which_service_and_its_status(tmp_path):
    supervisor = Supervisor()
    supervisor.guard.start()
    service = SupervisedService("web", [sys.executable, "-c", "raise SystemExit(7)"], ready=lambda: False)
    supervisor.start(service)
    with pytest.raises(StartError, match="web ended with status 7"):
        supervisor.wait_ready(service)
    supervisor.stop()


def test_a_stop_asked_for_during_the_start_is_heard(tmp_path):
    supervisor = Supervisor()
    supervisor.guard.start()
    service = SupervisedService("web", [sys.executable, "-c", "import time; time.sleep(60)"], ready=lambda: False)
    supervisor.start(service)
    supervisor.ask_to_stop()
    with pytest.raises(Stopped):
        supervisor.wait_ready(service)
    supervisor.stop()
    assert not service.running


def test_a_killed_supervisor_takes_its_children_and_grandchildren_along(tmp_path):
    script = textwrap.dedent(
        f"""
        import sys, time, pathlib
        from appliance.local.processes import Guard, SupervisedService
        guard = Guard(); guard.start()
        parent = '''
        import subprocess, sys, time, signal, pathlib
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stubborn = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", stubborn])
        pathlib.Path({str(tmp_path / "pids")!r}).write_text(str(child.pid))
        time.sleep(600)
        '''
        import textwrap
        service = SupervisedService("node", [sys.executable, "-c", textwrap.dedent(parent)])
        service.start(guard)
        print(service.process.pid, flush=True)
        time.sleep(600)
        """
    )
    supervisor = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    parent = int(supervisor.stdout.readline())
    child = int(eventually(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text()))
    assert alive(parent) and alive(child)
    supervisor.kill()
    supervisor.wait()
    eventually(lambda: not alive(parent) and not alive(child))


def test_two_appliances_do_not_share_a_home(tmp_path):
    first, second = HomeLock(tmp_path), HomeLock(tmp_path)
    first.take()
    with pytest.raises(StartError, match=f"process {os.getpid()}.*NEREUS_HOME"):
        second.take()
    first.release()
    second.take()
    second.release()


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
    import socket

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


def test_the_guard_does_nothing_when_all_was_stopped_in_order(tmp_path):
    guard = Guard()
    guard.start()
    service = sleeper(tmp_path, "web")
    service.start(guard)
    eventually(service.ready)
    service.stop(guard)
    # Were a group left on its list, it would end what has that number now.
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as bystander:
        guard.send("add", bystander.pid)
        guard.send("remove", bystander.pid)
        guard.stop()
        assert bystander.poll() is None
        bystander.kill()


def test_the_times_to_stop_add_up_to_less_than_the_15_s_that_are_promised(tmp_path):
    values = Settings.from_environ({"NEREUS_HOME": str(tmp_path), "NEREUS_GATEWAYS": "2"})
    log = tmp_path / "log"
    credentials = {"join_token": "t"}
    every = [redis_service(values, log), *services(values, credentials, log), load_service(values, log)]
    assert sum(max(service.stop_s for service in group) for group in stop_order(every)) < 15
