"""Uploading variants: what is accepted, what is refused and how, and that nothing half-done stays."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading

import httpx
import onnx
import pytest
from channels.db import database_sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.test import Client as Browser
from django.utils import timezone
from rest_framework.test import APIClient

from registry import models, storage, uploads
from registry.api import body_limit
from registry.api.body_limit import BodyLimit
from registry.errors import Conflict
from registry.inspection import limits
from scheduler import operations
from scheduler import uploads as shown_uploads
from tests.accounts import account, bearer
from tests.registry import graphs
from tests.registry.conftest import named, problem
from tests.registry.graphs import node, tensor

GOOD = graphs.good()


def test_a_good_model_is_stored_by_its_digest_and_waits_for_its_profiles(upload, device, files, announced):
    device("box/cpu0", "cpu-a"), device("box/cpu1", "cpu-a"), device("box/gpu0", "gpu-b")
    response = upload(GOOD, accuracy=91.5)
    assert response.status_code == 201
    assert response["Location"].endswith("/api/v1/applications/tiny/variants/v/")
    body = response.json()
    digest = hashlib.sha256(GOOD).hexdigest()
    assert (body["digest"], body["size_bytes"], body["opset"]) == (digest, len(GOOD), 17)
    assert (body["accuracy"], body["accuracy_source"], body["state"]) == (91.5, "declared", "profiling")
    assert body["inspection"]["inputs"] == graphs.SIGNATURE["inputs"]
    assert body["inspection"]["parameters"] == 12
    assert files() == [digest]
    assert storage.path(digest).read_bytes() == GOOD
    jobs = models.ProfileJob.objects.order_by("device_type")
    assert [(job.device_type, job.state, job.reason) for job in jobs] == [
        ("cpu-a", "queued", "registration"),
        ("gpu-b", "queued", "registration"),
    ]
    assert ("variant", "tiny/v") in announced


def test_one_file_under_two_names_is_kept_until_the_last_goes(upload, client, files, swept):
    assert upload(GOOD, name="a").status_code == 201
    assert upload(GOOD, name="b").status_code == 201
    assert len(files()) == 1
    assert client.delete("/api/v1/applications/tiny/variants/a/").status_code == 204
    swept()
    assert len(files()) == 1
    assert client.delete("/api/v1/applications/tiny/variants/b/").status_code == 204
    swept()
    assert files() == []


def test_a_row_that_depends_on_its_company_is_remarked(upload):
    response = upload(graphs.mixes_rows())
    assert response.status_code == 201
    assert "with the other rows of its batch" in response.json()["inspection"]["warnings"][0]


def test_a_model_of_open_dimensions_is_tried_with_sizes_that_it_takes(upload, application):
    application.signature = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    }
    application.save()
    weights = graphs.constant("w", [[1.0] * 3] * 64, "float32")
    # Only 64 columns multiply with these weights: 16 fails, 64 runs.
    data = graphs.model(inputs=[tensor("x", ["b", "n"])], weights=weights).SerializeToString()
    assert upload(data).status_code == 201


def _model(*args, **kwargs) -> bytes:
    return graphs.model(*args, **kwargs).SerializeToString()


NEWEST = onnx.defs.onnx_opset_version()
INT64, FLOAT16 = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT16

BAD_MODELS = {
    "empty": (b"", "file", "is empty"),
    "text": (b"not a model " * 99, "file", "is not an ONNX model"),
    "zeros": (bytes(5000), "file", "is not an ONNX model"),
    "other protobuf": (onnx.TensorProto(dims=[1], data_type=1).SerializeToString(), "file", "is not an ONNX model"),
    "truncated in the middle": (GOOD[: len(GOOD) // 2], "file", "is truncated"),
    "truncated by a byte": (GOOD[:-1], "file", "is truncated"),
    "no operators": (
        onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])).SerializeToString(),
        "file",
        "graph without operators",
    ),
    "external data": (graphs.external("weights.bin"), "file.external_data", "outside, in 'weights.bin'"),
    "external data elsewhere": (graphs.external("/etc/passwd"), "file.external_data", "outside, in '/etc/passwd'"),
    "external data in a node": (graphs.external_in_attribute(), "file.external_data", "etc/passwd"),
    "opset too new": (_model(opset=NEWEST + 1), "file.opset", f"opset {NEWEST + 1} is too new"),
    "opset absurd": (_model(opset=10**9), "file.opset", "is too new"),
    "IR version too new": (_model(ir_version=99), "file.ir_version", "IR version 99 is too new"),
    "newer than the runtime": (_model(ir_version=onnx.IR_VERSION), "file.ir_version", "onnxruntime supports up to"),
    "unknown operator": (
        _model([node("Frobnicate", ["x"], ["y"])]),
        "file.operators",
        "Frobnicate is unknown in opset",
    ),
    "custom domain": (
        _model([node("Secret", ["x"], ["y"], domain="acme.ops")], domains=["acme.ops"]),
        "file.operators",
        "custom domain 'acme.ops'",
    ),
    "reads other files": (
        _model([node("EPContext", ["x"], ["y"], domain="com.microsoft")], domains=["com.microsoft"]),
        "file.operators",
        "reads other files",
    ),
    "broken graph": (_model([node("MatMul", ["nowhere", "w"], ["y"])]), "file", "not a valid ONNX model"),
    "huge constant claimed": (graphs.huge_constant_claim(), "file", f"the limit is {limits.MAX_ELEMENTS}"),
    "constant of rank 10": (graphs.deep_constant(), "file", "has 10 dimensions; the limit is 8"),
    "too many operators": (
        lambda: graphs.too_many_nodes(limits.MAX_NODES + 1),
        "file",
        f"more than {limits.MAX_NODES} operators",
    ),
    "graphs too deep": (graphs.nested(9), "file", "nests graphs deeper than 8 levels"),
    "fixed batch": (
        _model(inputs=[tensor("x", [8, 4])], outputs=[tensor("y", [8, 3])]),
        "file.inputs.x.shape",
        "has no batch dimension: the first is fixed at 8; export the model with a dynamic first one (or one of 1,",
    ),
    "wrong rank": (
        _model([node("Flatten", ["x"], ["f"]), node("MatMul", ["f", "w"], ["y"])], [tensor("x", ["b", 2, 2])]),
        "file.inputs.x.shape",
        "has 3 dimensions [-1, 2, 2]; the application's signature has [-1, 4]",
    ),
    "wrong size": (
        _model(inputs=[tensor("x", ["b", 5])], weights=graphs.constant("w", [[1.0] * 3] * 5, "float32")),
        "file.inputs.x.shape",
        "dimension 1 is 5; the application's signature says 4",
    ),
    "wrong output size": (
        _model(outputs=[tensor("y", ["b", 2])], weights=graphs.constant("w", [[1.0] * 2] * 4, "float32")),
        "file.outputs.y.shape",
        "dimension 1 is 2; the application's signature says 3",
    ),
    "wrong datatype": (
        _model([node("Cast", ["x"], ["f"], to=1), node("MatMul", ["f", "w"], ["y"])], [tensor("x", ["b", 4], INT64)]),
        "file.inputs.x.datatype",
        "is INT64; the application's signature says FP32",
    ),
    "wrong output datatype": (
        _model(
            [node("MatMul", ["x", "w"], ["z"]), node("Cast", ["z"], ["y"], to=FLOAT16)],
            outputs=[tensor("y", ["b", 3], FLOAT16)],
        ),
        "file.outputs.y.datatype",
        "is FP16; the application's signature says FP32",
    ),
    "input of another name": (
        _model([node("MatMul", ["image", "w"], ["y"])], [tensor("image", ["b", 4])]),
        "file.inputs.x",
        "is missing: the application's signature has it; the model's inputs are 'image'",
    ),
    "output of another name": (
        _model([node("MatMul", ["x", "w"], ["scores"])], outputs=[tensor("scores", ["b", 3])]),
        "file.outputs.y",
        "the model's outputs are 'scores'",
    ),
    "one input more": (
        _model(
            [node("MatMul", ["x", "w"], ["z"]), node("Add", ["z", "b"], ["y"])],
            [tensor("x", ["b", 4]), tensor("b", ["b", 3])],
        ),
        "file.inputs.b",
        "is not in the application's signature",
    ),
    "output is a sequence": (
        _model(
            [node("MatMul", ["x", "w"], ["z"]), node("SequenceConstruct", ["z"], ["y"])],
            outputs=[onnx.helper.make_tensor_sequence_value_info("y", 1, ["b", 3])],
        ),
        "file.outputs.y.datatype",
        "seq(tensor(float))",
    ),
    "joins its rows": (
        graphs.joins_rows(),
        "file.outputs.y.shape",
        "has no batch dimension: 3 rows in gave shape [1, 3]",
    ),
    "takes one row only": (graphs.one_row_only(), "file", "fails a run with 3 rows"),
    "gives NaN": (graphs.gives_nan(), "file.outputs.y", "gave NaN"),
    "memory bomb": (graphs.memory_bomb(), "file", "needs more than 256 MiB of memory beyond its own size"),
    "memory bomb at the load": (graphs.memory_bomb_at_load(), "file", "NEREUS_INSPECT_MEMORY_MB"),
}


@pytest.mark.parametrize("kind", BAD_MODELS)
def test_a_bad_model_is_refused_by_name_and_leaves_nothing(kind, upload, files, announced):
    data, field, text = BAD_MODELS[kind]
    errors = problem(upload(data() if callable(data) else data), 400)
    assert field in errors, errors
    assert text in errors[field]
    assert "/models/" not in str(errors) and "onnxruntime/core" not in str(errors)
    assert files() == []
    assert not models.Variant.objects.exists() and not models.ProfileJob.objects.exists()
    assert announced == []


def test_a_model_that_never_ends_is_stopped_at_its_cpu_limit(upload, files, nereus):
    nereus(inspect_seconds=1)
    errors = problem(upload(graphs.endless_loop()), 400)
    assert "more than 1 s of CPU time" in errors["file"] and "NEREUS_INSPECT_SECONDS" in errors["file"]
    assert files() == []


BAD_FIELDS = {
    "no file": ({"data": None}, 400, "file", "No file was submitted"),
    "no name": ({"name": None}, 400, "name", "required"),
    "name with a slash": ({"name": "a/b"}, 400, "name", "must be 1 to 63 letters"),
    "name of a parent folder": ({"name": "../x"}, 400, "name", "must be 1 to 63 letters"),
    "name too long": ({"name": "n" * 64}, 400, "name", "63"),
    "accuracy missing": ({"accuracy": None}, 400, "accuracy", "has no validation set to measure it"),
    "accuracy in words": ({"accuracy": "high"}, 400, "accuracy", "valid number"),
    "accuracy above 100": ({"accuracy": 100.5}, 400, "accuracy", "less than or equal to 100"),
    "accuracy below 0": ({"accuracy": -1}, 400, "accuracy", "greater than or equal to 0"),
    "accuracy not a number": ({"accuracy": "nan"}, 400, "accuracy", "number"),
    "misspelt field": ({"acuracy": 90}, 400, "acuracy", "did you mean accuracy?"),
    "file as text": ({"data": None, "file": "abc"}, 400, "file", "not a file"),
}


@pytest.mark.parametrize("kind", BAD_FIELDS)
def test_bad_fields_are_named(kind, upload, files):
    fields, status, field, text = BAD_FIELDS[kind]
    errors = problem(upload(**{"data": GOOD, **fields}), status)
    assert text in errors[field], errors
    assert files() == []


def test_an_unknown_application_is_not_found(upload, files):
    problem(upload(GOOD, application="nobody"), 404)
    assert files() == []


def test_json_is_no_upload(client, application):
    url = "/api/v1/applications/tiny/variants/"
    assert "file" in problem(client.post(url, {"name": "v", "accuracy": 1}, format="json"), 400)
    problem(client.post(url, b"raw", content_type="application/octet-stream"), 415)
    problem(client.post(url, b"--x\r\nbroken", content_type="multipart/form-data"), 400)


def test_a_taken_name_is_a_conflict_and_the_first_stays(upload, files):
    assert upload(GOOD).status_code == 201
    errors = problem(upload(graphs.good(seed=1)), 409)
    assert "has a variant named 'v' already" in errors["name"]
    assert files() == [hashlib.sha256(GOOD).hexdigest()]


@pytest.mark.parametrize("excess", [10_000, 500_000], ids=["passed in mid-stream", "announced"])
def test_an_upload_past_the_limit_is_refused_with_the_limit(excess, upload, files, nereus):
    nereus(max_upload_bytes=2**20)
    errors = problem(upload(bytes(2**20 + excess)), 413)
    assert "limit of 1048576 bytes" in errors["file"] and "NEREUS_MAX_UPLOAD_MB" in errors["file"]
    assert files() == []


def test_several_files_share_the_limit(client, application, files, nereus):
    nereus(max_upload_bytes=2**20)
    half = bytes(2**19 + 5000)
    fields = {"name": "v", "accuracy": 1, "file": named(half, "a"), "other": named(half, "b")}
    errors = problem(client.post("/api/v1/applications/tiny/variants/", fields, format="multipart"), 413)
    assert "1048576" in errors["file"]
    assert files() == []


@pytest.mark.django_db(transaction=True)
async def test_a_body_of_unknown_length_is_cut_off_while_it_streams(transactional_db, application, operator, files):
    limit = 2**20
    authorization = await database_sync_to_async(bearer)(operator)
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 2**16
            yield bytes(2**16)

    transport = httpx.ASGITransport(BodyLimit(get_asgi_application(), limit))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        response = await http.post(
            "/api/v1/applications/tiny/variants/",
            content=endless(),
            headers={"Authorization": authorization, "Content-Type": "multipart/form-data; boundary=x"},
        )
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"
    assert "limit of 1048576 bytes" in response.json()["errors"][0]["detail"]
    assert sent <= limit + 2**18
    assert files() == []


async def test_an_announced_length_is_refused_before_the_body():
    transport = httpx.ASGITransport(BodyLimit(get_asgi_application(), 1000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        response = await http.post("/api/v1/applications/", content=bytes(200_000))
    assert response.status_code == 413


class Upload:
    """An upload over ASGI whose bytes are sent one by one."""

    def __init__(self, limits: BodyLimit, headers: dict[str, str], announced: int | None = None):
        self.taken = 0
        self.sent: asyncio.Queue = asyncio.Queue()
        self.answer: list[dict] = []
        lines = {"host": "localhost", "content-type": "multipart/form-data; boundary=x", **headers}
        if announced is not None:
            lines["content-length"] = str(announced)
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/api/v1/applications/tiny/variants/",
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
            "headers": [(name.encode(), value.encode()) for name, value in lines.items()],
        }
        self.task = asyncio.create_task(limits(scope, self._receive, self._send))

    async def _receive(self) -> dict:
        chunk = await self.sent.get()
        self.taken += len(chunk)
        return {"type": "http.request", "body": chunk, "more_body": True}

    async def _send(self, message: dict) -> None:
        self.answer.append(message)

    async def status(self) -> tuple[int, dict]:
        async with asyncio.timeout(60):
            await self.task
        body = b"".join(message.get("body", b"") for message in self.answer[1:])
        return self.answer[0]["status"], json.loads(body)


def limit(bytes: int = 2**26, **more) -> BodyLimit:
    return BodyLimit(get_asgi_application(), bytes, **more)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("announced", [2**25, None])
@pytest.mark.parametrize(
    "caller, status", [(None, 401), ("Bearer x", 401), ("Cookie", 401), ("viewer", 403), ("expired", 401)]
)
async def test_more_than_a_megabyte_is_read_from_callers_alone_who_may_upload(
    transactional_db, application, caller, status, announced
):
    headers = {} if caller is None else {"authorization": caller}
    if caller == "Cookie":
        headers = {"cookie": f"{settings.SESSION_COOKIE_NAME}=nothing"}
    if caller in ("viewer", "expired"):
        user = await database_sync_to_async(account)("someone", "viewer" if caller == "viewer" else "operator")
        headers = {"authorization": await database_sync_to_async(bearer)(user)}
    if caller == "expired":
        await models.ApiToken.objects.aupdate(expires=timezone.now())
    upload = Upload(limit(), headers, announced)
    for _ in range(64):
        upload.sent.put_nowait(bytes(2**19))
    found, problem = await upload.status()
    assert found == status and problem["detail"]
    assert upload.taken <= (0 if announced else 2**21)


@pytest.mark.django_db(transaction=True)
async def test_an_operators_session_uploads_too(transactional_db, application, operator):
    browser = Browser()
    await database_sync_to_async(browser.force_login)(operator)
    name = settings.SESSION_COOKIE_NAME
    upload = Upload(limit(2**21), {"cookie": f"{name}={browser.cookies[name].value}"})
    for _ in range(8):
        upload.sent.put_nowait(bytes(2**19))
    status, problem = await upload.status()
    assert status == 413, problem
    assert upload.taken > 2**21, "read beyond the first megabyte"


@pytest.mark.django_db(transaction=True)
async def test_two_large_uploads_at_once_are_the_most(transactional_db, application, operator):
    headers = {"authorization": await database_sync_to_async(bearer)(operator)}
    limits = limit()
    first, second = Upload(limits, headers, 2**25), Upload(limits, headers, 2**25)
    for upload in (first, second):
        upload.sent.put_nowait(bytes(10))
    async with asyncio.timeout(60):
        while not (first.taken and second.taken):
            await asyncio.sleep(0.01)
    status, problem = await Upload(limits, headers, 2**25).status()
    assert status == 503 and "2 large uploads are being received" in problem["detail"]
    first.task.cancel()
    await asyncio.gather(first.task, return_exceptions=True)
    third = Upload(limits, headers, 2**25)
    third.sent.put_nowait(bytes(10))
    async with asyncio.timeout(60):
        while not third.taken:
            await asyncio.sleep(0.01)
    for upload in (second, third):
        upload.task.cancel()
    await asyncio.gather(second.task, third.task, return_exceptions=True)


@pytest.mark.django_db(transaction=True)
async def test_an_upload_is_a_task_of_its_sender_that_owners_cancel(
    transactional_db, application, operator, clean_redis, monkeypatch
):
    monkeypatch.setattr(body_limit, "TOLD_EVERY_S", 0.0)
    owner = Browser()
    await database_sync_to_async(owner.force_login)(await database_sync_to_async(account)("owner", "model owner"))

    async def tasks() -> list[dict]:
        answer = await database_sync_to_async(owner.get)("/api/v1/tasks/")
        return [one for one in answer.json()["results"] if one["kind"] == "upload"]

    upload = Upload(limit(), {"authorization": await database_sync_to_async(bearer)(operator)}, 2**22)
    upload.sent.put_nowait(bytes(2**20))
    async with asyncio.timeout(60):
        while not (shown := await tasks()):
            await asyncio.sleep(0.01)
    (task,) = shown
    assert (task["by"], task["application"], task["state"]) == ("operator", "tiny", "running")
    assert (task["detail"], task["progress"]) == ("received 1.0 MiB of 4.0", 0.25)
    nothing = await database_sync_to_async(owner.delete)("/api/v1/uploads/another/")
    assert nothing.status_code == 404
    cancelled = await database_sync_to_async(owner.delete)(task["cancel"])
    assert cancelled.status_code == 204
    upload.sent.put_nowait(bytes(2**20))
    status, problem = await upload.status()
    assert (status, problem["detail"]) == (409, "the upload was cancelled by owner")
    assert await tasks() == []


def test_an_inspection_is_told_with_its_sender_and_cannot_be_cancelled(upload, operator, clean_redis):
    told = []

    def listen(sender, upload, **_):
        (task,) = [one for one in operations.current() if one.kind == "upload"]
        told.append((task.by, task.title, task.detail.split()[0], task.cancel))
        with pytest.raises(Conflict):
            shown_uploads.cancel(upload.key, "owner")

    uploads.upload_moved.connect(listen)
    try:
        assert upload(graphs.good()).status_code == 201
    finally:
        uploads.upload_moved.disconnect(listen)
    assert told == [("operator", "tiny/v", "inspecting", "")]
    assert shown_uploads.current() == []


@pytest.mark.django_db(transaction=True)
async def test_a_sender_that_stays_silent_or_trickles_is_cut_off(transactional_db, application, operator):
    headers = {"authorization": await database_sync_to_async(bearer)(operator)}
    silent = Upload(limit(silence_s=0.2), headers, 2**25)
    status, problem = await silent.status()
    assert status == 408 and "no data for 0.2 s" in problem["detail"]
    slow = Upload(limit(silence_s=0.5), headers, 2**25)

    async def trickle() -> None:
        while not slow.task.done():
            slow.sent.put_nowait(b"x")
            await asyncio.sleep(0.05)

    await trickle()
    status, problem = await slow.status()
    assert status == 408 and "bytes/s" in problem["detail"]


@pytest.mark.django_db(transaction=True)
def test_of_two_uploads_of_one_name_one_wins(transactional_db, client, application, files):
    tokens = [client._credentials["HTTP_AUTHORIZATION"]] * 2
    contents = [graphs.good(seed=1), graphs.good(seed=2)]
    codes: dict[int, int] = {}
    start = threading.Barrier(2)

    def post(index: int) -> None:
        from django.db import connection

        own = APIClient()
        own.credentials(HTTP_AUTHORIZATION=tokens[index])
        start.wait()
        fields = {"name": "v", "accuracy": 90, "file": named(contents[index], "m")}
        codes[index] = own.post("/api/v1/applications/tiny/variants/", fields, format="multipart").status_code
        connection.close()

    threads = [threading.Thread(target=post, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes.values()) == [201, 409]
    winner = next(index for index, code in codes.items() if code == 201)
    assert files() == [hashlib.sha256(contents[winner]).hexdigest()]
    assert models.Variant.objects.count() == 1
