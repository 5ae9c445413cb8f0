"""The measuring tools for servers under pressure: the client's count of failures and the server's agree."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter

import numpy as np
import pytest

from appliance.load.records import HTTP, ROW, Records
from appliance.load.sender import Load, Phase, arrivals
from benchmarks import pressure
from benchmarks.faults import history
from benchmarks.faults.checker import merged, queries_of
from benchmarks.faults.clients import ClientProcess, Stream, Work
from benchmarks.generator import Generator, LoadError, Summary
from benchmarks.growth import growth
from tools.waiting import eventually

pytestmark = pytest.mark.wide

RIGHT, WRONG = np.float32([1, 2, 3]).tobytes(), np.float32([1, 2, 4]).tobytes()


def ok(output: bytes = RIGHT, variant: str = "fast") -> bytes:
    header = f'{{"parameters":{{"variant":"{variant}","queue_ms":1.5,"batch_size":4}},"outputs":[]}}'.encode()
    sizes = b"content-length: %d\r\ninference-header-content-length: %d" % (len(header) + len(output), len(header))
    return b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (sizes, header + output)


def refusal(retry: bool = True) -> bytes:
    return b"HTTP/1.1 503 No\r\n%bcontent-length: 2\r\n\r\n{}" % (b"retry-after: 1\r\n" if retry else b"")


class Server:
    """``script``: the n-th answer after the warm-up, as its bytes, "hang up" or "nothing"."""

    def __init__(self, script: list, warm: int, host: str = "127.0.0.1", port: int = 0):
        self.script, self.asked, self.warm = script, 0, warm
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._talk, host, port), self._loop)
        self.port = server.result(60).sockets[0].getsockname()[1]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                number, self.asked = self.asked - self.warm, self.asked + 1
                answer = ok() if number < 0 else self.script[number % len(self.script)]
                if answer == "hang up":
                    writer.close()
                elif answer != "nothing":
                    writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


def load(port: int, **given) -> Load:
    given = {"connections": 2, "patience_s": 4.0} | given
    return Load(port, [b"GET / HTTP/1.1\r\n\r\n"], {"fast": [RIGHT], "slow": [RIGHT]}, **given)


def ran(server: Server, given: Load, slo_s: float = 1.0) -> tuple[Records, Summary]:
    try:
        with Generator() as generator:
            return generator.run(given, slo_s)
    finally:
        server.close()


def test_each_way_to_end_is_counted_as_what_it_is():
    script = [ok(), ok(variant="slow"), ok(WRONG), ok(variant="other"), refusal(), refusal(False), "hang up", "nothing"]
    server = Server(script, warm=2)
    phases = [Phase(1.0, 200.0)]
    records, summary = ran(server, load(server.port, phases=phases), slo_s=0.4)
    each = len(records) / len(script)
    assert len(records) == len(arrivals(phases, 0)) > 100
    # Each came round equally often, except for the last round.
    counts = Counter(records.rows["status"].tolist())
    assert counts.keys() == {200, 503, -1, -2, -3}
    for status, share in {200: 2, 503: 2, -1: 1, -2: 1, -3: 2}.items():
        assert abs(counts[status] - share * each) <= 2
    assert records.untold == counts[-1] + counts[-2] + counts[-3]
    assert abs(records.without_retry() - each) <= 1
    variants = records.variants(["fast", "slow"])
    assert sum(variants.values()) == counts[200]
    assert abs(variants["fast"] - variants["slow"]) <= 1
    assert records.queue_ms(0.5) == 1.5
    assert set(records.rows["batch"][records.answered]) == {4}
    assert np.isnan(records.rows["ended"][records.rows["status"] == -2]).all()
    assert records.latency_ms(0.5) == float("inf")
    assert any("a wrong answer" in note for note in summary.notes)


def test_a_server_that_is_not_there_and_one_that_answers_nothing_are_said_so():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with Generator() as generator, pytest.raises(LoadError, match=r"failed: .*refused"):
            generator.run(load(nobody.getsockname()[1], closed_s=0.1), 1.0)
    server = Server([ok()], warm=0)
    server.script = ["nothing"]
    with pytest.raises(LoadError, match="no answer while warming up"):
        ran(server, load(server.port, closed_s=0.1))


def test_a_closed_loop_goes_on_after_refusals_and_lost_connections():
    server = Server([ok(), refusal(), "hang up"], warm=2)
    records, _ = ran(server, load(server.port, closed_s=0.8))
    assert records.ends().keys() == {"503", "connection failed"}
    # Two clients that wait 50 ms after each refusal.
    assert 2 <= np.count_nonzero(records.refused) <= 34


def test_an_answer_that_nobody_asked_for_is_counted():
    server = Server([ok() + ok()], warm=2)
    records, summary = ran(server, load(server.port, due=[(0.0, 0), (0.1, 0)]))
    assert records.ends() == {"connection failed": 2} and np.count_nonzero(records.answered) == 2
    assert any("nobody asked for" in note for note in summary.notes)


def test_clients_record_each_query_and_repeat_it_at_the_next_address(tmp_path):
    first = Server([refusal(), "hang up", ok()], warm=0)
    second = Server([ok()], warm=0, host="127.0.0.2", port=first.port)
    stream = Stream("a", "http", 50.0, [1], [b"\0\0\0\0"], {"fast": [RIGHT]})
    work = Work(str(tmp_path / "r"), first.port, "key", [stream], ["127.0.0.1", "127.0.0.2"])
    try:
        with ClientProcess(work) as clients:
            eventually(lambda: first.asked > 30 and second.asked > 30, why="both were asked")
    finally:
        first.close()
        second.close()
    attempts = queries_of(history.read(clients.file))
    ends = Counter((one.sent.id.rpartition("@")[2], one.end.end) for one in attempts)
    assert ends.keys() == {("0", "fail"), ("0", "unknown"), ("0", "ok"), ("1", "ok")}
    queries = merged(attempts)
    assert all(one.end.end == "ok" and one.end.right for one in queries)
    assert len(attempts) - len(queries) == ends["0", "fail"] + ends["0", "unknown"]


def test_arrivals_are_poisson_at_the_rate_of_each_phase():
    due = arrivals([Phase(50.0, 100.0), Phase(50.0, 0.0), Phase(50.0, 400.0)], seed=3)
    assert (np.diff(due) >= 0).all()
    counts = np.histogram(due, [0, 50, 100, 150])[0]
    assert counts[1] == 0
    for count, expected in ((counts[0], 5_000), (counts[2], 20_000)):
        assert abs(count - expected) < 4 * expected**0.5
    gaps = np.diff([at for at in due if at < 50])
    # The deviation of exponential gaps is their mean.
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.06)


def rows(*queries: tuple[float, float, int]) -> Records:
    """Rows of (due, ended, status)."""
    made = np.zeros(len(queries), ROW)
    for row, (due, ended, status) in zip(made, queries, strict=True):
        row["due"], row["sent"], row["ended"], row["status"] = due, due, ended, status
    return Records(made, HTTP, 0.2)


def test_late_answers_and_refusals_are_no_goodput():
    records = rows((0.0, 0.1, 200), (0.1, 0.4, 200), (0.2, 0.201, 503), (0.3, 0.5, 200), (0.4, 0.41, 504))
    assert np.count_nonzero(records.in_time) == 2
    assert records.late == 1
    assert records.ends() == {"503": 1, "504": 1}
    assert records.refusal_ms(0.5) == pytest.approx(1.0)
    assert len(records.between(0.1, 0.3)) == 2


def test_the_slope_is_that_of_the_trend_whatever_single_moments_do():
    moments = np.arange(0.0, 600.0)
    values = 100 + moments / 60 + 5 * np.sin(moments)
    values[::50] += 500
    holds, text = growth("memory", pressure.LIMITS["memory"], moments, values)
    assert not holds and float(text.split()[3]) == pytest.approx(10, rel=0.1)
    assert growth("memory", pressure.LIMITS["memory"], moments, values - moments / 60)[0]


def test_given_times_are_kept_though_nothing_is_answered_meanwhile():
    requests = [b"GET /a HTTP/1.1\r\n\r\n", b"GET /b HTTP/1.1\r\n\r\n"]
    server = Server([ok()], warm=2)
    due = [(0.01 * number, number % 2) for number in range(50)]
    given = load(server.port, due=due)
    given.requests, given.answers = requests, {"fast": [RIGHT, RIGHT]}
    records, _ = ran(server, given, slo_s=10.0)
    assert records.rows["request"].tolist() == [0, 1] * 25
    assert np.allclose(records.rows["due"], [at for at, _ in due])
    assert (records.rows["sent"] >= records.rows["due"]).all()


def test_queries_count_from_when_they_were_due_though_the_server_stood_still():
    stopped = threading.Event()

    class Stalled(Server):
        async def _talk(self, reader, writer):
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    if self.asked == self.warm + 10 and not stopped.is_set():
                        stopped.set()
                        time.sleep(0.6)
                    self.asked += 1
                    writer.write(ok())
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

    server = Stalled([ok()], warm=4)
    records, summary = ran(server, load(server.port, connections=4, phases=[Phase(1.5, 200.0)]), slo_s=0.1)
    assert records.answered.all()
    # About 100 were due more than 0.1 s before it went on, and found no connection free.
    assert records.late > 40 and summary.connections > 4


def test_idle_connections_that_were_lost_are_counted():
    # The load's only connection is served; whoever asks after it is hung up on.
    server = Server([ok()] * 3 + ["hang up"] * 1000, warm=6)
    given = load(server.port, connections=1, idle=5, due=[(0.0, 0), (0.05, 0), (0.1, 0)])
    records, summary = ran(server, given, slo_s=10.0)
    assert records.answered.all() and len(records) == 3
    assert summary.idle_lost == 5
