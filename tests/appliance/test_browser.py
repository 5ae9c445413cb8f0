"""An operator in a real browser signs in, uploads a model, and sees its profile appear and the charts move."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import signal
import threading
from functools import partial

import pytest
from websockets.sync.client import connect

from tests.appliance.conftest import live
from tests.load import Load
from tests.running import SIGNATURE, eventually
from tools.chromium import InThread, expect, sign_in, tab
from workers.node.executor_process import pid_path
from workers.protocol import control

pytestmark = pytest.mark.wide


def number(page: InThread, name: str, attribute: str = "") -> float:
    """A figure of the page, which is there as soon as its element is."""
    element = page.get_by_test_id(name)
    text = element.get_attribute(attribute) if attribute else element.inner_text()
    figure = re.match(r"[\d,.]+", text or "")
    return float(figure[0].replace(",", "")) if figure else 0.0


def test_a_wrong_password_is_refused(appliance, chromium):
    with tab(chromium, base_url=appliance.console) as page:
        sign_in(page, "admin", "not the password")
        expect(page.get_by_test_id("login-error")).to_be_visible()
        expect(page.get_by_test_id("login-password")).to_be_visible()
        expect(page.get_by_test_id("kpi-demand")).to_have_count(0)


def test_the_live_charts_move_while_queries_flow(appliance, page):
    live(page)
    points = partial(number, page, "chart-demand", "data-points")
    with Load(appliance.http, appliance.credentials["api_key"], rate=15):
        before = points()
        eventually(lambda: points() >= before + 3)
        eventually(lambda: number(page, "kpi-demand") > 5)
        expect(page.get_by_test_id("kpi-accuracy")).to_have_text(re.compile(r"^\s*\d"))
    expect(page.get_by_test_id("device-box/cpu0")).to_be_visible()


#: drops a file of these bytes (base64) on the guided upload, as a person would from a file manager
DROP = """(box, [name, packed]) => {
const carried = new DataTransfer();
carried.items.add(new File([Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0))], name));
for (const kind of ["dragenter", "dragover", "drop"])
  box.dispatchEvent(new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true }));
return document.querySelector('[data-testid="upload-file"]').files[0].name; }"""


def test_a_dropped_model_goes_from_file_to_first_answer_on_one_page(appliance, page, tiny_models):
    at, model = page.get_by_test_id, tiny_models["quick"]
    with appliance.rest() as client:
        answer = client.post("/applications/", json={"name": "uploaded", "slo_ms": 300, "signature": SIGNATURE})
        assert answer.status_code == 201
    page.goto("/applications/uploaded/")
    at("upload-link").click()
    # With its scripts, which take what is dropped.
    page.wait_for_url("**/upload/")
    packed = base64.b64encode(model.read_bytes()).decode()
    assert page.locator("[data-drop]").evaluate(DROP, [model.name, packed]) == model.name
    expect(at("upload-name")).to_have_value(model.stem)
    at("upload-name").fill("mine")
    at("upload-accuracy").fill("91.5")
    at("upload-submit").click()
    for fact in ("91.50 %, declared", "x FP32 [*, 4]", "y FP32 [*, 3]", re.compile("Gemm|MatMul")):
        expect(at("inspection")).to_contain_text(fact)
    expect(page.locator('[data-testid^="upload-job-"][data-state="done"]')).to_have_text(re.compile(r"1: .*ms"))
    expect(at("step-answer")).to_be_visible()
    expect(at("upload-ready")).to_contain_text("Send it a query")

    def first_answer() -> bool:
        at("try-submit").click()
        expect(at("try-answer")).to_be_visible()
        return "mine answered" in at("try-answer").inner_text()

    eventually(first_answer)
    assert page.url.endswith("/applications/uploaded/upload/?variant=mine")
    # Who comes back finds it where it was.
    page.reload()
    expect(at("inspection")).to_contain_text("91.50 %")
    expect(at("step-answer")).to_be_visible()
    page.goto("/applications/uploaded/")
    expect(at("variant-row-mine")).to_contain_text("ready", ignore_case=True)
    eventually(lambda: number(page, "curve-mine", "data-points") >= 3)
    with appliance.rest() as client:
        assert client.delete("/applications/uploaded/?drain=true").status_code in (202, 204)
        eventually(lambda: client.get("/applications/uploaded/").status_code == 404)


def test_an_upload_that_is_refused_is_explained_as_rest_explains_it(appliance, page, tmp_path):
    at, junk = page.get_by_test_id, tmp_path / "junk.onnx"
    junk.write_bytes(b"this is not a model" * 100)
    with appliance.rest() as client, junk.open("rb") as file:
        answer = client.post(
            "/applications/tiny/variants/", data={"name": "junk", "accuracy": "50"}, files={"file": file}
        )
    (error,) = answer.json()["errors"]
    assert "ONNX" in error["detail"]
    page.goto("/applications/tiny/upload/")
    at("upload-file").set_input_files(junk)
    at("upload-name").fill("junk")
    at("upload-accuracy").fill("50")
    at("upload-submit").click()
    expect(at("upload-error")).to_contain_text(error["detail"])
    # The file and the fields stay, so that the next try needs a click alone.
    expect(at("upload-name")).to_have_value("junk")
    expect(at("step-inspection")).to_be_hidden()


def test_an_operator_imagines_changes_and_applies_what_can_be_applied(appliance, page, faults):
    at = page.get_by_test_id
    with Load(appliance.http, appliance.credentials["api_key"], rate=15), appliance.rest() as client:
        # Arrivals that promises are made of.
        eventually(lambda: client.get("/promises/").status_code == 200)
        eventually(lambda: float(client.get("/plan/").json()["demand"]) > 5)
        page.goto("/what-if/")
        at("what-if-demand-tiny").fill("45")
        at("what-if-slo-tiny").fill("390")
        answer = at("what-if-answer")

        def answered() -> bool:
            at("what-if-ask").click()
            expect(answer).to_have_attribute("data-state", re.compile("done|failed"))
            return answer.get_attribute("data-state") == "done"

        # Until arrivals of ten seconds are known.
        eventually(answered)
        expect(answer).to_contain_text("windows simulated")
        expect(answer).to_contain_text("Changes for tiny.")
        expect(at("then-violations-tiny")).to_contain_text("%")
        expect(at("plan-of-tiny")).to_contain_text("390")
        at("what-if-slo-tiny").fill("0.5")
        page.evaluate("document.getElementById('imagine').noValidate = true")
        at("what-if-ask").click()
        expect(at("what-if-error")).to_contain_text("slo_ms")
        before = client.get("/applications/tiny/").json()["slo_ms"]
        try:
            page.once("dialog", lambda dialog: dialog.accept())
            at("what-if-apply").click()
            expect(at("what-if-applied")).to_be_visible()
            assert client.get("/applications/tiny/").json()["slo_ms"] == 390
        finally:
            assert client.patch("/applications/tiny/", json={"slo_ms": before}).status_code == 200
        page.goto("/promises/")
        expect(at("promise-tiny")).to_be_visible()
    assert [fault for fault in faults if "status of 400" not in fault] == []


def test_pages_load_without_a_script_error_or_a_foreign_host(appliance, page, faults):
    urls = []
    page.on("request", lambda request: urls.append(request.url))
    tiny = "/applications/tiny/"
    for path in ("/", "/applications/", tiny, f"{tiny}upload/", "/plans/", "/plan/", "/nodes/", "/keys/", "/repairs/"):
        live(page, path)
    own = (appliance.console, appliance.console.replace("http", "ws"), "data:", "blob:")
    assert urls and [url for url in urls if not url.startswith(own)] == []
    assert faults == []


@contextlib.contextmanager
def laggard(appliance):
    """A node without devices that takes no configuration over until the event that this yields is set."""
    obeys, ended = threading.Event(), threading.Event()

    def report(socket) -> None:
        held = "a hash of the past"
        while not ended.is_set():
            try:
                message = control.decode_to_node(socket.recv(timeout=0.5))
            except TimeoutError:
                stats = control.NodeStats(devices=(), plan_version=0, config_hash=held, jobs=())
                socket.send(control.encode(stats))
                continue
            if isinstance(message, control.NodeConfig) and obeys.is_set():
                held = message.hash

    url = appliance.console.replace("http", "ws") + "/ws/node/"
    headers = {"Authorization": f"Bearer {appliance.credentials['join_token']}"}
    with connect(url, additional_headers=headers) as socket:
        socket.send(control.encode(control.JoinNode(name="laggard", devices=())))
        thread = threading.Thread(target=report, args=(socket,))
        thread.start()
        try:
            yield obeys
        finally:
            ended.set()
            thread.join(10)


class Killer(threading.Thread):
    """Kills every executor of a device as soon as it is there, until it is stopped."""

    def __init__(self, endpoint: str):
        super().__init__(daemon=True)
        self._path = pid_path(endpoint)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(self._path.read_text().split()[0]), signal.SIGKILL)

    def stop(self) -> None:
        self._ended.set()
        self.join(10)


def test_a_lost_device_and_a_node_that_takes_nothing_over_are_told_until_they_are_back(appliance, page):
    at = page.get_by_test_id
    with appliance.rest() as client:
        devices = client.get("/devices/").json()["results"]
    # The last of them: where there are two, the other one goes on serving.
    device = [each for each in devices if each["ref"].startswith("box/")][-1]
    live(page, "/repairs/")
    lost, need = at(f"repair-device:{device['ref']}"), at("need-behind:node:laggard")
    expect(lost).to_have_count(0)
    with laggard(appliance) as obeys:
        killer = Killer(device["endpoint"])
        killer.start()
        try:
            expect(lost).to_contain_text("of this appliance's capacity is lost")
            expect(lost).to_contain_text("since")
            expect(at("repairs-count")).to_have_text(re.compile("[1-9]"))
            expect(at("repairs-told")).to_contain_text("need")
            page.goto("/")
            expect(need).to_contain_text("Node laggard does not adopt its configuration")
            page.goto("/nodes/")
            expect(at("behind-laggard")).to_contain_text("behind since")
            at("behind-laggard").click()
            expect(at("repair-behind:node:laggard")).to_contain_text("older plan")
        finally:
            killer.stop()
        # Nobody reloads the page.
        expect(lost).to_have_count(0)
        page.goto("/")
        expect(need).to_be_visible()
        obeys.set()
        expect(need).to_have_count(0)
    with appliance.rest() as client:
        assert client.post("/nodes/laggard/revoke/").status_code == 200
        eventually(lambda: client.delete("/nodes/laggard/").status_code == 204, why="the node deleted")
