"""The measuring tool of the query path, on real parts: its figures agree with one another, and trouble ends the run."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from benchmarks.query import stack
from benchmarks.query.generator import Load
from benchmarks.query.load import Generator, LoadError
from benchmarks.query.servers import Bare
from benchmarks.query_path import main

ANSWER = b"\0" * 12


def _table(page: str) -> list[dict[str, str]]:
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(head, row, strict=True)) for row in rows]


def _figure(row: dict[str, str], column: str) -> float:
    return float(row[column].replace(",", ""))


def test_the_figures_of_a_run_agree(tmp_path):
    out = tmp_path / "page.md"
    command = [sys.executable, "-m", "benchmarks.query_path", "--quick", "--only", "tiny", "--out", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == out.read_text().strip()
    nereus = [row for row in _table(out.read_text()) if row["server"] == "Nereus, V2 HTTP"]
    assert sorted(row["load"].split(",")[0] for row in nereus) == ["Poisson", "closed", "closed"]
    for row in nereus:
        parts = _figure(row, "gateway µs") + _figure(row, "executor µs")
        assert parts == pytest.approx(_figure(row, "server µs"), abs=2)
        assert _figure(row, "raw/server") == pytest.approx(_figure(row, "raw µs") / _figure(row, "server µs"), abs=0.01)
        assert 0 < _figure(row, "p50 ms") <= _figure(row, "p99 ms")
        assert 1 <= _figure(row, "batch") <= 16
        if row["load"].startswith("closed"):
            # Little's law: queries under way are the rate times the mean time, which lies between zero and the p99's.
            connections = int(row["load"].split(", ")[1])
            assert _figure(row, "batch") <= connections
            assert _figure(row, "queries/s") * _figure(row, "p99 ms") / 1e3 >= 0.5 * connections
        else:
            asked = float(row["load"].split()[1].removesuffix("/s").replace(",", ""))
            # A busy machine answers fewer, and none more than chance brings.
            assert 0 < _figure(row, "queries/s") <= 1.3 * asked
        # Two cores, the load generator's share included.
        assert _figure(row, "server µs") * _figure(row, "queries/s") < 2.2e6


def test_routing_decisions_are_measured_by_devices_and_situation(tmp_path):
    out = tmp_path / "page.md"
    assert main(["--quick", "--only", "routing", "--out", str(out)]) == 0
    rows = _table(out.read_text())
    assert {row["devices"] for row in rows} == {"40", "160", "1000"}
    picks = [row["situation"] for row in rows if row["decision"] == "Router.pick"]
    assert len(picks) == len(rows) - 3 == 3 * len(set(picks))
    for row in rows:
        assert 0 < _figure(row, "median µs") <= _figure(row, "p99 µs")
        if row["decision"] == "Dispatcher.submit":
            assert _figure(row, "with ends and wakes, mean µs") >= _figure(row, "mean µs")


async def _answers(port: int, answers: list[bytes]) -> None:
    """A server that gives these answers to whatever it is asked, and then none."""
    left = list(answers)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            if not left:
                writer.close()
                return
            writer.write(left.pop(0))

    server = await asyncio.start_server(talk, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def _ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        ([_ok(ANSWER)] * 20 + [_ok(b"\x7f" * 12)] * 5, "a wrong answer"),
        ([_ok(ANSWER)] * 20 + [b"HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\nno"] * 5, "500 Oh"),
        ([_ok(ANSWER)] * 20, "connection lost"),
    ],
)
async def test_a_query_without_its_answer_ends_the_run(answers, complaint):
    (port,) = stack.free_ports(1)
    serving = asyncio.create_task(_answers(port, answers))
    load = Load(port, [b"GET / HTTP/1.1\r\n\r\n"], [ANSWER], "closed", 1, 0.2, 1.0, warm_up=2)
    try:
        with Generator() as generator, pytest.raises(LoadError, match=complaint):
            await asyncio.to_thread(generator.run, load, dict)
    finally:
        serving.cancel()


def test_open_loop_queries_count_from_when_they_were_due(tmp_path):
    """A server that is stopped for a while makes everything late that was due meanwhile, not only what it holds."""
    from benchmarks.query.models import tiny

    pauses: list[subprocess.Popen] = []
    with Bare(tmp_path, tiny(tmp_path)) as server, Generator() as generator:
        load = server.load(mode="open", connections=4, seconds=1.5, slo_s=0.1, rate=200.0, warm_up=8)

        def cpu_s() -> dict[str, float]:
            # Asked for when the load begins, and again when it has ended.
            if not pauses:
                stop_and_go = f"sleep 0.3; kill -STOP {server.pid}; sleep 0.6; kill -CONT {server.pid}"
                pauses.append(subprocess.Popen(["sh", "-c", stop_and_go]))
            return server.cpu_s()

        spent = generator.run(load, cpu_s)
        pauses[0].wait()
    assert spent.outcome.sent == spent.outcome.answered
    # About 120 were due while it stood still, most of them more than 0.1 s before it went on.
    assert spent.outcome.late > 40
    assert spent.outcome.connections > 4


@pytest.mark.parametrize("arguments", [["--only", "huge"], ["--against", "nobody"], ["--only", ""]])
def test_what_there_is_not_is_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert "must be of" in capsys.readouterr().err
