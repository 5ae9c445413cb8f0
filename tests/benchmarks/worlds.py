"""A small folder like that of the published data: three applications that run anywhere, and short traces."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

from benchmarks.evaluation.worlds import TRACES

DURATION_S = 12


def folder(path: Path) -> Path:
    lines = ["application,variant,accuracy_normalized,device_type,batch,p50_ms,p90_ms,mean_ms"]
    for application in ("faces", "words", "plates"):
        for variant, accuracy, ms in (("tiny", 80, 20), ("base", 95, 60), ("large", 100, 140)):
            for kind, factor in (("cpu", 1.0), ("pascal", 0.5), ("ampere", 0.25)):
                for batch in (1, 2, 4):
                    took = ms * factor * (0.7 + 0.3 * batch)
                    lines.append(f"{application},{variant},{accuracy},{kind},{batch},{took},{took * 1.1},{took}")
    path.mkdir(parents=True, exist_ok=True)
    (path / "profiles.csv").write_text("\n".join(lines) + "\n")
    (path / "traces").mkdir(exist_ok=True)
    for trace in TRACES:
        numbers = random.Random(trace)
        arrivals = sorted(
            (numbers.uniform(0, DURATION_S * 1000), numbers.choice(("faces", "words", "plates")))
            for _ in range(40 * DURATION_S)
        )
        text = "arrival_ms,application\n" + "".join(f"{ms:.3f},{name}\n" for ms, name in arrivals)
        (path / "traces" / f"{trace}.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return path
