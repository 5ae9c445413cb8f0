"""Takes the documentation's pictures of the console.

The console is that of a running appliance under the demo's load. It starts an appliance with the demo, lets its load
run, asks what would be if demand doubled, and stores pictures of pages as chromium shows them, with few colours so that
they stay small.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from pathlib import Path

from tools import chromium
from tools.child import ROOT, RunningAppliance
from tools.chromium import InThread
from tools.waiting import eventually

#: seconds for the demo's variants to be measured
LONGEST_S = 1500.0
SIZE = {"width": 1280, "height": 860}
COLOURS = 96
NICENESS = 19
#: seconds for charts to be drawn
DRAWN_S = 4.0
#: name: theme, path, and the part of the page that is waited for and scrolled to
PICTURES = {
    "overview": ("light", "/?range=300", ""),
    "overview-dark": ("dark", "/?range=300", "[aria-label='Cluster over time']"),
    "application": ("light", "/applications/{application}/", ""),
    "frontier": ("light", "/applications/{application}/", "#frontier figure"),
    "queries": ("dark", "/applications/{application}/", "#queries table"),
    "plan": ("light", "/plan/", ""),
    "what-if": ("light", "/what-if/", "#answer:is([data-state=done], [data-state=failed])"),
    "nodes": ("light", "/nodes/", ""),
}


def take(page: InThread, name: str, application: str, folder: Path) -> Path:
    theme, path, part = PICTURES[name]
    page.evaluate("(theme) => localStorage.setItem('nereus-theme', theme)", theme)
    page.goto(path.format(application=application))
    page.locator("#live-state[data-state=live]").wait_for()
    if name == "what-if":
        page.locator("#factor").fill("2")
        page.get_by_test_id("what-if-ask").click()
    if part:
        # Below the bars at the page's top.
        page.locator(part).first.evaluate("(part) => part.scrollIntoView()")
    time.sleep(DRAWN_S)
    target = folder / f"{name}.png"
    _store(page.screenshot(), target)
    return target


def _store(png: bytes, target: Path) -> None:
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(target, optimize=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks screenshots", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=15.0, help="of load before the first picture")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", help="folder for the pictures")
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        appliance = RunningAppliance(Path(folder) / "home", "--demo")
        try:
            appliance.start()
            eventually(lambda: "load runs" in appliance.read(), LONGEST_S, 1.0, "the demo's load")
            # A browser that starts beside the load, on the cores that answer queries, would make them late.
            os.nice(NICENESS)
            with appliance.rest() as rest:
                application = rest.get("/applications/").json()["results"][0]["name"]
            with chromium.console(appliance.console, appliance.credentials) as page:
                page.set_viewport_size(SIZE)
                time.sleep(60 * options.minutes)
                for name in options.only:
                    target = take(page, name, application, options.out)
                    print(f"{target}: {target.stat().st_size / 1000:.0f} KB", flush=True)
        finally:
            appliance.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
