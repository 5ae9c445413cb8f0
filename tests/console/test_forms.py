"""Forms of the pages in a real browser: what a submitted form sends to the API."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from pathlib import Path

import pytest

from tests.console.browsing import printed

pytestmark = pytest.mark.wide

STATIC = Path(__file__).resolve().parents[2] / "static"

FORM = """
<form data-api="/thing" data-method="{method}">
  <input name="applications" value="{applications}" data-kind="names">
  <input name="rate" type="number" step="any" value="1.23457" data-kind="number-or-none">
  <input name="burst" type="number" value="" data-kind="number-or-none">
  <input name="description" value="two lines">
  <select name="late"><option value="shed">shed</option><option value="serve" selected>serve</option></select>
  <label><input type="checkbox" name="pinned"></label>
  <div data-form-error hidden></div><button type="submit">Save</button>
</form>
"""


class _Handler(http.server.SimpleHTTPRequestHandler):
    page = ""
    bodies: list

    def do_GET(self) -> None:
        if self.path != "/test.html":
            super().do_GET()
            return
        self._send("text/html; charset=utf-8", self.page.encode())

    def do_PATCH(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._send("application/json", b"{}")

    do_POST = do_PATCH

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args) -> None:
        pass


@pytest.fixture(scope="module")
def submitted(chromium):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(STATIC)))
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def run(script: str, method: str = "PATCH", applications: str = "*") -> list[dict]:
        _Handler.bodies = []
        form = FORM.format(method=method, applications=applications)
        _Handler.page = f"""<!doctype html><meta name="csrf-token" content="x"><main></main>{form}<pre id="out"></pre>
            <script type="module">
            import {{ startForms }} from "/nereus/forms.js";
            startForms();
            const form = document.querySelector("form"), button = form.querySelector("button");
            const saved = async () => {{
              button.click();
              do await new Promise((resolve) => setTimeout(resolve, 20)); while (button.disabled);
            }};
            const run = async () => {{ {script} }};
            document.getElementById("out").textContent = await run().then(() => "done", String);
            </script>"""
        assert printed(chromium, f"http://127.0.0.1:{server.server_port}/test.html") == "done"
        return _Handler.bodies

    yield run
    server.shutdown()
    server.server_close()


def test_a_change_sends_the_touched_fields_alone(submitted):
    bodies = submitted("form.elements.burst.value = '5'; form.elements.pinned.checked = true; await saved();")
    # The rate is shown rounded, and the description on one line: neither goes back as it is shown.
    assert bodies == [{"burst": 5, "pinned": True}]


def test_a_second_change_starts_from_the_first(submitted):
    bodies = submitted(
        "form.elements.late.value = 'shed'; await saved(); form.elements.rate.value = ''; await saved();"
        "form.elements.late.value = 'serve'; await saved();"
    )
    assert bodies == [{"late": "shed"}, {"rate": None}, {"late": "serve"}]


def test_a_new_row_gets_every_field(submitted):
    bodies = submitted("await saved();", "POST")
    everything = {"rate": 1.23457, "burst": None, "description": "two lines", "late": "serve", "pinned": False}
    assert bodies == [{**everything, "applications": None}]


def test_a_key_without_applications_stays_so(submitted):
    assert submitted("form.elements.burst.value = '5'; await saved();", applications="") == [{"burst": 5}]
    assert submitted("form.elements.applications.value = ''; await saved();") == [{"applications": []}]
    assert submitted("form.elements.applications.value = ' * '; await saved();", applications="a") == [
        {"applications": None}
    ]
    assert submitted("form.elements.applications.value = 'a, b'; await saved();") == [{"applications": ["a", "b"]}]
