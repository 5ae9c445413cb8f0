"""An operator in a real browser.

The operator signs in, uploads a model, and sees its profile appear and the live charts move.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import threading

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from websockets.sync.client import connect

from tests import chromium
from tests.load import Load
from tests.running import SIGNATURE, eventually
from workers.node.executor_process import pid_path
from workers.protocol import control

pytestmark = pytest.mark.wide


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium.running(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


def by_testid(browser, name: str):
    return browser.find_element(By.CSS_SELECTOR, f'[data-testid="{name}"]')


def click(browser, name: str) -> None:
    """Scroll to a control, away from the bars at the page's top and bottom, and click.

    The page may draw it anew between two of these steps: one that is gone was not clicked.
    """
    for _ in range(20):
        with contextlib.suppress(StaleElementReferenceException):
            control = by_testid(browser, name)
            browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", control)
            control.click()
            return
    raise AssertionError(f"{name} is drawn anew all the time")


def fill(field, text: str) -> None:
    field.clear()
    field.send_keys(text)


def wait(browser, condition, seconds: float = 300):
    return WebDriverWait(browser, seconds, 0.2, ignored_exceptions=(Exception,)).until(lambda _: condition())


@pytest.fixture(scope="module")
def signed_in(appliance, browser):
    browser.get(appliance.console + "/")
    by_testid(browser, "login-username").send_keys(appliance.credentials["console_user"])
    by_testid(browser, "login-password").send_keys(appliance.credentials["console_password"])
    click(browser, "login-submit")
    wait(browser, lambda: by_testid(browser, "kpi-demand"))
    return browser


def test_a_wrong_password_is_refused(appliance, browser):
    browser.get(appliance.console + "/")
    by_testid(browser, "login-username").send_keys("admin")
    by_testid(browser, "login-password").send_keys("not the password")
    click(browser, "login-submit")
    wait(browser, lambda: by_testid(browser, "login-password"))
    assert not browser.find_elements(By.CSS_SELECTOR, '[data-testid="kpi-demand"]')


def test_the_live_charts_move_while_queries_flow(appliance, signed_in):
    browser = signed_in
    browser.get(appliance.console + "/")
    wait(browser, lambda: by_testid(browser, "live-state").text.strip().lower() == "live")

    def points() -> int:
        return int(by_testid(browser, "chart-demand").get_attribute("data-points"))

    with Load(appliance.http, appliance.credentials["api_key"], rate=15):
        # The page may be live before its charts are drawn.
        (before,) = wait(browser, lambda: (points(),))
        wait(browser, lambda: points() >= before + 3)
        wait(browser, lambda: float(by_testid(browser, "kpi-demand").text.split()[0].replace(",", "")) > 5)
        wait(browser, lambda: by_testid(browser, "kpi-accuracy").text.strip()[0].isdigit())
    wait(browser, lambda: by_testid(browser, "device-box/cpu0").is_displayed())


#: drops a file of these bytes (base64) on the guided upload, as a person would from a file manager
DROP = """
const [name, packed] = arguments, carried = new DataTransfer();
carried.items.add(new File([Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0))], name));
const box = document.querySelector("[data-drop]");
for (const kind of ["dragenter", "dragover", "drop"])
  box.dispatchEvent(new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true }));
return document.querySelector('[data-testid="upload-file"]').files[0].name;
"""


def dropped(browser, path) -> str:
    return browser.execute_script(DROP, path.name, base64.b64encode(path.read_bytes()).decode())


def test_a_dropped_model_goes_from_file_to_first_answer_on_one_page(appliance, signed_in, tiny_models):
    browser = signed_in
    with appliance.rest() as client:
        answer = client.post("/applications/", json={"name": "uploaded", "slo_ms": 300, "signature": SIGNATURE})
        assert answer.status_code == 201
    browser.get(f"{appliance.console}/applications/uploaded/")
    click(browser, "upload-link")
    wait(browser, lambda: by_testid(browser, "upload-drop").is_displayed())
    assert dropped(browser, tiny_models["quick"]) == tiny_models["quick"].name
    assert by_testid(browser, "upload-name").get_attribute("value") == tiny_models["quick"].stem
    fill(by_testid(browser, "upload-name"), "mine")
    by_testid(browser, "upload-accuracy").send_keys("91.5")
    click(browser, "upload-submit")
    facts = wait(browser, lambda: by_testid(browser, "inspection").text)
    assert "91.50 %, declared" in facts and "x FP32 [*, 4]" in facts and "y FP32 [*, 3]" in facts
    assert "Gemm" in facts or "MatMul" in facts
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, '[data-testid^="upload-job-"][data-state="done"]'))
    job = browser.find_element(By.CSS_SELECTOR, '[data-testid^="upload-job-"]')
    assert "1: " in wait(browser, lambda: job.text if "ms" in job.text else "")
    wait(browser, lambda: by_testid(browser, "step-answer").is_displayed())
    wait(browser, lambda: "Send it a query" in by_testid(browser, "upload-ready").text)

    def first_answer() -> bool:
        click(browser, "try-submit")
        wait(browser, lambda: by_testid(browser, "try-answer").is_displayed())
        return "mine answered" in by_testid(browser, "try-answer").text

    wait(browser, first_answer)
    assert browser.current_url.endswith("/applications/uploaded/upload/?variant=mine")
    # Who comes back finds it where it was.
    browser.refresh()
    wait(browser, lambda: "91.50 %" in by_testid(browser, "inspection").text)
    wait(browser, lambda: by_testid(browser, "step-answer").is_displayed())
    browser.get(f"{appliance.console}/applications/uploaded/")
    wait(browser, lambda: "ready" in by_testid(browser, "variant-row-mine").text.lower())
    wait(browser, lambda: int(by_testid(browser, "curve-mine").get_attribute("data-points") or 0) >= 3)
    with appliance.rest() as client:
        assert client.delete("/applications/uploaded/?drain=true").status_code in (202, 204)

        def deleted():
            return client.get("/applications/uploaded/").status_code == 404

        eventually(deleted)


def test_an_upload_that_is_refused_is_explained_as_rest_explains_it(appliance, signed_in, tmp_path):
    browser = signed_in
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"this is not a model" * 100)
    with appliance.rest() as client, junk.open("rb") as file:
        answer = client.post(
            "/applications/tiny/variants/", data={"name": "junk", "accuracy": "50"}, files={"file": file}
        )
    (error,) = answer.json()["errors"]
    browser.get(f"{appliance.console}/applications/tiny/upload/")
    by_testid(browser, "upload-file").send_keys(str(junk))
    fill(by_testid(browser, "upload-name"), "junk")
    by_testid(browser, "upload-accuracy").send_keys("50")
    click(browser, "upload-submit")
    text = wait(browser, lambda: by_testid(browser, "upload-error").text.strip())
    assert error["detail"] in text and "ONNX" in text
    # The file and the fields stay, so that the next try needs a click alone.
    assert by_testid(browser, "upload-name").get_attribute("value") == "junk"
    assert not by_testid(browser, "step-inspection").is_displayed()


def test_an_operator_imagines_changes_and_applies_what_can_be_applied(appliance, signed_in):
    browser = signed_in
    browser.get_log("browser")

    def answer(state: str) -> str | None:
        section = by_testid(browser, "what-if-answer")
        return section.text if section.get_attribute("data-state") == state else None

    with Load(appliance.http, appliance.credentials["api_key"], rate=15), appliance.rest() as client:
        # Arrivals that promises are made of.
        wait(browser, lambda: client.get("/promises/").status_code == 200)
        browser.get(appliance.console + "/what-if/")
        wait(browser, lambda: float(client.get("/plan/").json()["demand"]) > 5)
        browser.refresh()
        fill(by_testid(browser, "what-if-demand-tiny"), "45")
        fill(by_testid(browser, "what-if-slo-tiny"), "390")

        def answered() -> str | None:
            click(browser, "what-if-ask")
            wait(browser, lambda: answer("done") or answer("failed"))
            return answer("done")

        # Until arrivals of ten seconds are known.
        text = wait(browser, answered)
        assert "windows simulated" in text and "Changes for tiny." in text
        assert "%" in by_testid(browser, "then-violations-tiny").text
        assert "390" in by_testid(browser, "plan-of-tiny").text
        fill(by_testid(browser, "what-if-slo-tiny"), "0.5")
        browser.execute_script("document.getElementById('imagine').noValidate = true")
        click(browser, "what-if-ask")
        wait(browser, lambda: "slo_ms" in by_testid(browser, "what-if-error").text)
        before = client.get("/applications/tiny/").json()["slo_ms"]
        try:
            click(browser, "what-if-apply")
            browser.switch_to.alert.accept()
            wait(browser, lambda: by_testid(browser, "what-if-applied").is_displayed())
            assert client.get("/applications/tiny/").json()["slo_ms"] == 390
        finally:
            assert client.patch("/applications/tiny/", json={"slo_ms": before}).status_code == 200
        browser.get(appliance.console + "/promises/")
        wait(browser, lambda: by_testid(browser, "promise-tiny").is_displayed())
    refused = "status of 400"
    severe = [
        line for line in browser.get_log("browser") if line["level"] == "SEVERE" and refused not in line["message"]
    ]
    assert not severe


@pytest.mark.parametrize(
    "page",
    [
        "/",
        "/applications/",
        "/applications/tiny/",
        "/applications/tiny/upload/",
        "/plans/",
        "/plan/",
        "/nodes/",
        "/keys/",
        "/repairs/",
    ],
)
def test_every_page_loads_without_a_script_error_or_a_foreign_host(appliance, signed_in, page):
    browser = signed_in
    browser.get_log("browser")
    browser.get(appliance.console + page)
    wait(browser, lambda: browser.execute_script("return document.readyState") == "complete")
    severe = [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert not severe
    urls = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [url for url in urls if not url.startswith((appliance.console, "data:", "blob:"))] == []


@contextlib.contextmanager
def laggard(appliance):
    """Connect a node without devices that takes no configuration over for a while.

    It does so once the event that this yields is set.
    """
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


def test_a_node_that_takes_nothing_over_is_warned_of_until_it_does(appliance, signed_in):
    browser = signed_in
    browser.get(appliance.console + "/")
    wait(browser, lambda: by_testid(browser, "live-state").text.strip().lower() == "live")

    def needs() -> list[str]:
        found = browser.find_elements(By.CSS_SELECTOR, '[data-testid="need-behind:node:laggard"]')
        return [element.text for element in found]

    with laggard(appliance) as obeys:
        (text,) = wait(browser, needs)
        assert "Node laggard does not adopt its configuration" in text
        browser.get(appliance.console + "/nodes/")
        wait(browser, lambda: "behind since" in by_testid(browser, "behind-laggard").text)
        click(browser, "behind-laggard")
        wait(browser, lambda: "older plan" in by_testid(browser, "repair-behind:node:laggard").text)
        browser.get(appliance.console + "/")
        wait(browser, needs)
        obeys.set()
        wait(browser, lambda: not needs())
    with appliance.rest() as client:
        assert client.post("/nodes/laggard/revoke/").status_code == 200
        eventually(lambda: client.delete("/nodes/laggard/").status_code == 204, why="the node deleted")


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


def test_a_lost_device_is_a_repair_until_it_is_back(appliance, signed_in):
    browser = signed_in
    with appliance.rest() as client:
        devices = client.get("/devices/").json()["results"]
        # The last of them: where there are two, the other one goes on serving.
        device = [each for each in devices if each["ref"].startswith("box/")][-1]
    key = f"device:{device['ref']}"
    browser.get(appliance.console + "/repairs/")
    wait(browser, lambda: by_testid(browser, "live-state").text.strip().lower() == "live")

    def shown() -> list[str]:
        return [each.text for each in browser.find_elements(By.CSS_SELECTOR, f'[data-testid="repair-{key}"]')]

    assert shown() == []
    killer = Killer(device["endpoint"])
    killer.start()
    try:
        (text,) = wait(browser, shown)
        assert "of this appliance's capacity is lost" in text and "since" in text
        wait(browser, lambda: int(by_testid(browser, "repairs-count").text) >= 1)
        wait(browser, lambda: "need" in by_testid(browser, "repairs-told").get_attribute("textContent"))
    finally:
        killer.stop()
    # Nobody reloads the page.
    wait(browser, lambda: not shown())
    with appliance.rest() as client:
        repairs = client.get("/repairs/").json()["results"]
        assert key not in [repair["key"] for repair in repairs]
