"""What three times as much as it can answer does to the query path.

A real gateway and a real executor on one core serve an application with three variants of different cost and accuracy
within 200 ms; the plan stays as it is, no control plane runs. Capacity is what a closed loop gets answered in time of
an application with nothing but the least accurate variant, before and after, so that a machine that changes meanwhile
shows. Then, in one open loop (Poisson), half of that capacity, three times it, and half of it again. Queries come from
a process of their own, away from the executor's core, and count from when they were due, whether or not the generator
was in time to send them. What ended how is counted by the client and held against the gateway's own counters.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workers.protocol.specs import DeviceStats

from .query import counters
from .query.heading import heading
from .query.load import LoadError
from .query.pressed import Capacity, capacity
from .query.recording.driver import Recorder
from .query.recording.process import Phase, Summary
from .query.recording.records import Records
from .query.stack import StackError
from .query.table import Row, markdown
from .query.variants import KINDS, PRESSED, SLO_S, VARIANTS, Known, VariantStack, make
from .query.watch import Watch

#: of capacity: what is offered beside, and in the burst
BESIDE, BURST = 0.5, 3.0
#: connections opened beforehand; an open loop opens more where it needs them
CONNECTIONS = 64
#: goodput in the burst over capacity, at least
GOODPUT = 0.95
#: a refusal that takes longer than this share of the SLO did not come at once
AT_ONCE = 0.25
#: growth of memory during the burst that is none: a share, and MiB
GROWTH, GROWTH_MIB = 0.03, 4.0
#: seconds of one plan period, in which the tail must have recovered
PLAN_PERIOD_S = 10.0


@dataclass(frozen=True)
class Effort:
    """Seconds: of the burst, of half the load before and after, of each measurement of capacity, and of profiling a
    batch size."""

    burst: float
    before: float
    after: float
    capacity: float
    profile: float

    @classmethod
    def of(cls, seconds: float) -> Effort:
        """All of it for a burst of so many seconds."""
        return cls(
            burst=seconds,
            before=max(1.0, min(15.0, seconds / 4)),
            after=max(2.0, min(20.0, seconds / 2)),
            capacity=max(1.0, min(10.0, seconds / 4)),
            profile=0.02 if seconds < 10 else 0.2,
        )


#: seconds of a burst
MINUTE, QUICK = 60.0, 3.0


@dataclass(frozen=True)
class Found:
    """Of one run. ``capacities``: before and after. ``device``: what the executor told of its seconds in the burst.
    ``counted``: by the gateway during the open loop."""

    effort: Effort
    variants: Sequence[Known]
    capacities: Sequence[Capacity]
    records: Records
    summary: Summary
    watch: Watch
    device: Sequence[DeviceStats]
    counted: dict[str, int]

    @property
    def capacity(self) -> float:
        return sum(one.rate for one in self.capacities) / len(self.capacities)

    @property
    def burst(self) -> tuple[float, float]:
        """Seconds of its beginning and end."""
        return self.effort.before, self.effort.before + self.effort.burst

    def in_burst(self) -> Records:
        return self.records.between(*self.burst)

    def served(self, start: float, end: float) -> float:
        """Queries a second that were answered in time between two moments of the load."""
        ended = self.records.rows["ended"]
        some = self.records.in_time & (ended >= start) & (ended < end)
        return float(np.count_nonzero(some)) / (end - start)


def measure(effort: Effort, kind: str, grpc: bool) -> Found:
    """Run everything once.

    Raises:
        LoadError, StackError: a process did not start or ended.
    """
    with tempfile.TemporaryDirectory(prefix="nereus-p-") as home:
        folder = Path(home)
        file = folder / "records.npy"
        variants = make(folder, kind, effort.profile)
        with VariantStack(folder, variants) as stack, Recorder() as recorder:
            capacities = [capacity(stack, recorder, file, effort.capacity, grpc)]
            rate = capacities[0].rate
            if not rate:
                raise LoadError("not one query was answered in time where capacity was measured")
            phases = [
                Phase(effort.before, BESIDE * rate),
                Phase(effort.burst, BURST * rate),
                Phase(effort.after, BESIDE * rate),
            ]
            load = stack.load(PRESSED, file, grpc, connections=CONNECTIONS, phases=phases)
            before: list[dict[str, int]] = []
            pids = {name: stack.pid(name) for name in ("gateway", "executor")}
            with Watch(pids, every_s=min(1.0, effort.burst / 12)) as watch:
                records, summary = recorder.run(
                    load, SLO_S, lambda: before.append(counters.ended(stack.http_port, PRESSED))
                )
            counted = counters.since(before[0], counters.ended(stack.http_port, PRESSED))
            start = summary.began + effort.before
            device = stack.device_seconds(start + 1, start + effort.burst)
            connections = capacities[0].connections
            capacities.append(capacity(stack, recorder, file, effort.capacity, grpc, connections))
            stack.check()
            return Found(effort, variants, capacities, records, summary, watch, device, counted)


def _rows_s(known: Known) -> float:
    """Rows a second of the session at its best batch."""
    return max(batch / seconds for batch, seconds in known.profile.items())


# --- what is told -----------------------------------------------------------------------------------------------------


def _phases(found: Found) -> list[Row]:
    start, end = found.burst
    quarter = (end - start) / 4
    parts = [("before", 0.0, start)]
    parts += [(f"burst, quarter {i + 1}", start + i * quarter, start + (i + 1) * quarter) for i in range(4)]
    parts += [("burst", start, end), ("after", end, end + found.effort.after)]
    return [_phase(found, name, *part) for name, *part in parts]


def _phase(found: Found, name: str, start: float, end: float) -> Row:
    some = found.records.between(start, end)
    variants = some.variants(list(VARIANTS))
    answered = max(1, sum(variants.values()))
    accuracy = sum(VARIANTS[name] * count for name, count in variants.items()) / answered
    served = found.served(start, end)
    return {
        "": name,
        "offered/s": len(some) / (end - start),
        "in time/s": served,
        "of capacity": served / found.capacity,
        "late": some.late,
        "refused": int(np.count_nonzero(some.refused)),
        "other": len(some) - int(np.count_nonzero(some.answered | some.refused)),
        "p50 ms": some.latency_ms(0.5),
        "p99 ms": some.latency_ms(0.99),
        "queue p50 ms": some.queue_ms(0.5),
        "accuracy %": accuracy,
        **{variant: count / answered for variant, count in variants.items()},
    }


def _device(found: Found) -> list[Row]:
    first, last = (one.device for one in found.capacities)
    rows = []
    for name, seconds in (("capacity before", first), ("burst", found.device), ("capacity after", last)):
        row: dict[str, object] = {"": name, "busy": sum(one.busy for one in seconds) / max(1, len(seconds))}
        for place, variant in enumerate(VARIANTS, 1):
            # The least accurate one stands in the plan twice, once for each application.
            ids = {place, len(VARIANTS) + 1} if place == 1 else {place}
            ran = [some for one in seconds for some in one.variants if some.variant in ids]
            count, batches, busy_s = (sum(getattr(some, of) for some in ran) for of in ("rows", "batches", "busy_s"))
            row[f"{variant} ms"] = 1e3 * busy_s / count if count else None
            row[f"{variant} rows a batch"] = count / batches if batches else None
        rows.append(row)
    return rows


def _ends(records: Records) -> list[Row]:
    rows: list[Row] = []
    names = {"answered": records.answered}
    for status in np.unique(records.rows["status"][~records.answered]):
        names[records.protocol.name(int(status))] = records.rows["status"] == status
    for name, some in names.items():
        mine = records.rows[some]
        took_ms = (mine["ended"] - mine["sent"]) * 1e3
        rows.append(
            {
                "ended": name,
                "queries": len(mine),
                "p50 ms": float(np.median(took_ms)) if len(mine) else None,
                "p99 ms": float(np.quantile(took_ms, 0.99)) if len(mine) else None,
                "longest ms": float(np.max(took_ms)) if len(mine) else None,
                "says when to retry": None if name == "answered" else int(np.count_nonzero(mine["retry"])),
            }
        )
    return rows


def _held(found: Found) -> list[Row]:
    start, end = found.burst
    moments = [("at the beginning", 0.0), ("burst begins", start)]
    moments += [(f"after quarter {i}", start + i * (end - start) / 4) for i in (1, 2, 3)]
    moments += [("burst ends", end), ("at the end", end + found.effort.after)]
    rows = []
    for name, moment in moments:
        row: dict[str, object] = {"": name}
        for process in ("gateway", "executor"):
            sample = found.watch.at(process, found.summary.began + moment)
            row[f"{process} MiB"] = sample.rss_mib
            row[f"{process} descriptors"] = sample.descriptors
            row[f"{process} threads"] = sample.threads
            if process == "gateway":
                row["connections"] = sample.connections
        rows.append(row)
    return rows


def recovered_s(found: Found, window_s: float = 1.0) -> float:
    """Seconds after the burst from which on all that follows is as it was before: its p99 within that of the worst
    window before, and no larger a share without an answer, 1 % apart; infinite: never within the run."""
    _, end = found.burst
    before = found.records.between(0.0, found.effort.before)
    starts = np.arange(0.0, found.effort.before - window_s + 1e-9, window_s)
    windows = [before.between(start, start + window_s) for start in starts]
    p99_ms = max((some.latency_ms(0.99) for some in windows if some.answered.any()), default=0.0)
    missed = 0.01 + _missed(before)
    for after_s in np.arange(0.0, found.effort.after - window_s + 1e-9, window_s / 4):
        rest = found.records.between(end + after_s, float("inf"))
        if rest.latency_ms(0.99) <= p99_ms and _missed(rest) <= missed:
            return float(after_s)
    return float("inf")


def _missed(records: Records) -> float:
    """The share without an answer."""
    return float(np.count_nonzero(~records.answered)) / max(1, len(records))


def _growth(found: Found, process: str) -> tuple[float, float]:
    """(MiB by which memory grew from the burst's first quarter to its last, MiB in the first): medians."""
    start, end = (found.summary.began + moment for moment in found.burst)
    quarter = (end - start) / 4
    _, first = found.watch.series(process, "rss_mib", start, start + quarter)
    _, last = found.watch.series(process, "rss_mib", end - quarter, end)
    return float(np.median(last) - np.median(first)), float(np.median(first))


def verdicts(found: Found) -> list[tuple[bool, str]]:
    """Each thing that must hold: whether it does, and with what figures."""
    burst = found.in_burst()
    ratio = found.served(*found.burst) / found.capacity
    at_once_ms = AT_ONCE * SLO_S * 1e3
    other = int(np.count_nonzero(~burst.answered & ~burst.refused))
    back_s = recovered_s(found)
    counted, sent = sum(found.counted.values()), len(found.records)
    told = [
        (ratio >= GOODPUT, f"goodput in the burst is {ratio:.3f} of capacity (at least {GOODPUT})"),
        (not other, f"{other} queries of the burst ended in something else than an answer or a refusal"),
        (not burst.without_retry(), f"{burst.without_retry()} refusals do not say when to try again"),
        (
            burst.refusal_ms(0.99) <= at_once_ms,
            f"refusals took {burst.refusal_ms(0.5):.1f} ms, 99 % of them at most {burst.refusal_ms(0.99):.1f} ms "
            f"(at most {at_once_ms:.0f})",
        ),
        (
            back_s <= PLAN_PERIOD_S,
            f"the p99 latency is what it was {back_s:.2f} s after the burst (at most {PLAN_PERIOD_S:.0f})",
        ),
        (not found.records.untold, f"{found.records.untold} queries were lost or answered wrongly"),
        (counted == sent, f"the gateway counted {counted} queries ({_counts(found.counted)}), clients sent {sent}"),
    ]
    for process in ("gateway", "executor"):
        grown, first = _growth(found, process)
        allowed = max(GROWTH * first, GROWTH_MIB)
        told.append(
            (grown <= allowed, f"{process}: memory grew by {grown:.1f} MiB in the burst (at most {allowed:.1f})")
        )
    return told


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def page(found: Found, kind: str, grpc: bool) -> str:
    """The whole page but its heading, in Markdown."""
    burst, summary = found.in_burst(), found.summary
    start, end = (summary.began + moment for moment in found.burst)
    cores = {process: found.watch.cores(process, start, end) for process in ("gateway", "executor")}
    cores["the load generator"] = summary.cpu_s / summary.seconds
    cores["all else on this machine"] = max(0.0, found.watch.machine_cores(start, end) - sum(cores.values()))
    cpu = ", ".join(f"{name} {share:.2f}" for name, share in cores.items())
    capacities = " and ".join(
        f"{one.rate:.0f} ({one.connections} connections, {one.missed} not in time)" for one in found.capacities
    )
    alone = ", ".join(f"{known.name} {_rows_s(known):.0f}" for known in found.variants)
    lines = [
        f"{kind.upper()}s over V2 {'gRPC' if grpc else 'HTTP'}. Capacity before and after: {capacities} queries/s. "
        f"Sessions alone, at their best batch: {alone} rows/s.",
        markdown(_phases(found)),
        "The device: seconds of runs a second, and their time by row:",
        markdown(_device(found)),
        "How queries of the burst ended; times from when they were sent:",
        markdown(_ends(burst)),
        f"Cores in use in the burst: {cpu}. The generator sent queries of the burst {burst.lateness_ms(0.5):.2f} ms "
        f"late (p99: {burst.lateness_ms(0.99):.2f}), on {summary.connections} connections at most.",
        "What the processes held:",
        markdown(_held(found)),
        *(f"- {'holds' if holds else '**does not hold**'}: {text}" for holds, text in verdicts(found)),
    ]
    notes = [f"- noted: `{note.splitlines()[0] if note else ''}`" for note in summary.notes[:3]]
    return "\n\n".join([*lines[:9], "\n".join([*lines[9:], *notes])]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status: 1: queries were lost or answered wrongly, or a process did not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pressure", description=__doc__.splitlines()[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=_seconds, default=MINUTE, help=f"of the burst (default: {MINUTE:g})")
    length.add_argument(
        "--quick", dest="seconds", action="store_const", const=QUICK, help="as short as can be: to see that it works"
    )
    parser.add_argument("--grpc", action="store_true", help="over V2 gRPC instead of V2 HTTP")
    parser.add_argument("--kind", choices=KINDS, default="cnn", help="of models (default: cnn)")
    parser.add_argument("--out", type=Path, help="write the page to this file, too")
    given = parser.parse_args(arguments)
    effort = Effort.of(given.seconds)
    text = heading("Under pressure", __doc__)
    print(text, flush=True)
    try:
        found = measure(effort, given.kind, given.grpc)
    except (LoadError, StackError, OSError) as error:
        print(f"pressure: {error}", file=sys.stderr)
        return 1
    told = page(found, given.kind, given.grpc)
    print(told, flush=True)
    if given.out is not None:
        given.out.write_text(f"{text}\n{told}")
    return 1 if found.records.untold or found.watch.failed else 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1.0 <= seconds <= 3600.0:
        raise argparse.ArgumentTypeError(f"{text!r}: must be from 1 to 3600 seconds")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
