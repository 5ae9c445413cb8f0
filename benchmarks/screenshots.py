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

from benchmarks.scale import pages
from tools.child import ROOT, RunningAppliance
from tools.waiting import eventually

#: seconds for the demo's variants to be measured
LONGEST_S = 1500.0
WIDTH, HEIGHT = 1280, 860
COLOURS = 96
NICENESS = 19
#: seconds for charts to be drawn
DRAWN_S = 4.0
THEME = """localStorage.setItem("nereus-theme", arguments[0]); location.reload();"""
ASK = """document.getElementById("factor").value = "2"; document.querySelector("[data-testid=what-if-ask]").click();"""
ASKED = """const answer = document.getElementById("answer");
if (!["done", "failed"].includes(answer.dataset.state)) return false;
answer.scrollIntoView(); return true;"""


def scroll(selector: str) -> str:
    """Return a script that scrolls to a part of the page, once it is there.

    The part is then below the bars at the page's top.
    """
    return f"const part = document.querySelector({selector!r}); part?.scrollIntoView(); return Boolean(part);"


#: name: theme, path, script that asks for something, and script that is repeated until it returns true
PICTURES = {
    "overview": ("light", "/?range=300", "", "return true"),
    "overview-dark": ("dark", "/?range=300", "", scroll("[aria-label='Cluster over time']")),
    "application": ("light", "/applications/{application}/", "", "return true"),
    "frontier": ("light", "/applications/{application}/", "", scroll("#frontier figure")),
    "queries": ("dark", "/applications/{application}/", "", scroll("#queries table")),
    "plan": ("light", "/plan/", "", "return true"),
    "what-if": ("light", "/what-if/", ASK, ASKED),
    "nodes": ("light", "/nodes/", "", "return true"),
}


def take(driver, console: str, name: str, application: str, folder: Path) -> Path:
    """One picture; where it is."""
    theme, path, ask, ready = PICTURES[name]
    driver.get(console + path.format(application=application))
    driver.execute_script(THEME, theme)
    live = "return document.getElementById('live-state')?.dataset.state === 'live'"
    eventually(lambda: driver.execute_script(live), why=f"{path} live")
    if ask:
        driver.execute_script(ask)
    eventually(lambda: driver.execute_script(ready), why=f"{path} with what is shown")
    time.sleep(DRAWN_S)
    target = folder / f"{name}.png"
    _store(driver.get_screenshot_as_png(), target)
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
            secrets = appliance.credentials
            with appliance.rest() as rest:
                application = rest.get("/applications/").json()["results"][0]["name"]
            with pages.browser() as driver:
                size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
                pages.sign_in(driver, appliance.console, secrets["console_user"], secrets["console_password"])
                driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                time.sleep(60 * options.minutes)
                for name in options.only:
                    target = take(driver, appliance.console, name, application, options.out)
                    print(f"{target}: {target.stat().st_size / 1000:.0f} KB", flush=True)
        finally:
            appliance.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
