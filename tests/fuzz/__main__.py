"""Feed a target mutated inputs, by atheris (libFuzzer).

    python -m tests.fuzz TARGET RUNS FOLDER

A target is a module of this folder with ``seeds()``, inputs to begin with, and ``check(data)``, which raises where a
property does not hold for an input. An input that breaks one is left in FOLDER; add it to the target's seeds.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import atheris

#: processor time of one input: a thousand times what most take, so that a busy machine makes no difference
MOST_S = 5.0
#: longest input, resident memory, and seconds after which libFuzzer calls an input endless
LONGEST, RSS_MB, ENDLESS_S = 8192, 1024, 60


def main() -> None:
    """Run until there were enough inputs; exit with another status than 0 after a failure."""
    name, runs, folder = sys.argv[1:]
    with atheris.instrument_imports(include=["workers"]):
        target = importlib.import_module(f"tests.fuzz.{name}")
    corpus = Path(folder) / "corpus"
    corpus.mkdir(parents=True)
    for place, seed in enumerate(target.seeds()):
        target.check(seed)
        (corpus / f"seed-{place}").write_bytes(seed)

    def once(data: bytes) -> None:
        began = time.process_time()
        target.check(data)
        took = time.process_time() - began
        assert took < MOST_S, f"an input of {len(data)} bytes took {took:.1f} s"

    options = [f"-runs={runs}", f"-max_len={LONGEST}", f"-rss_limit_mb={RSS_MB}", f"-timeout={ENDLESS_S}"]
    atheris.Setup([sys.argv[0], *options, "-seed=1", f"-artifact_prefix={folder}/", str(corpus)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
