"""An operator's client on a real database, and a store that starts empty."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import shutil

import numpy as np
import pytest
from django.conf import settings as django_settings
from django.test import TestCase
from rest_framework.test import APIClient

from registry import events, models, storage
from tests.accounts import account, bearer
from tests.registry.graphs import SIGNATURE
from workers.settings import Settings


@pytest.fixture(autouse=True)
def announced(monkeypatch):
    """Announced events, in order; the scheduler, which needs Redis, is not listening."""
    changes = []
    monkeypatch.setattr(events.registry_changed, "receivers", [])

    def record(sender, kind, ref, **_):
        changes.append((kind, ref))

    events.registry_changed.connect(record, weak=False)
    return changes


@pytest.fixture(autouse=True)
def store(settings, monkeypatch):
    shutil.rmtree(storage.root(), ignore_errors=True)
    monkeypatch.setattr(storage, "_swept_at", None)
    settings.NEREUS = dataclasses.replace(django_settings.NEREUS, inspect_memory_bytes=256 * 2**20)
    yield storage.root()
    shutil.rmtree(storage.root(), ignore_errors=True)


@pytest.fixture
def swept(later, store):
    """A function that sweeps as often and as late as it takes until files that nothing needs are gone."""

    def sweep() -> None:
        for _ in range(2):
            storage.sweep()
            later(storage.LATE_S + 1)
        storage.sweep()

    return sweep


@pytest.fixture
def nereus(settings):
    def change(**values):
        settings.NEREUS = dataclasses.replace(settings.NEREUS, **values)

    return change


@pytest.fixture
def limited(tmp_path) -> Settings:
    made = Settings.from_environ({"NEREUS_HOME": str(tmp_path / "home")})
    return dataclasses.replace(made, inspect_seconds=5, inspect_memory_bytes=256 * 2**20)


@pytest.fixture
def files(store):
    def names() -> list[str]:
        return sorted(path.name for path in store.rglob("*") if path.is_file() and not path.name.startswith("."))

    return names


class Client(APIClient):
    """Runs what a request leaves for the commit, as the test's own transaction is never committed."""

    def request(self, **kwargs):
        with TestCase.captureOnCommitCallbacks(execute=True):
            return super().request(**kwargs)


@pytest.fixture
def operator(db):
    return account("operator")


@pytest.fixture
def client(operator):
    client = Client()
    client.credentials(HTTP_AUTHORIZATION=bearer(operator))
    return client


@pytest.fixture
def application(db):
    return models.Application.objects.create(name="tiny", slo_ms=100, signature=SIGNATURE)


@pytest.fixture
def upload(client, application):
    """Upload a model: ``upload(data, name=…, accuracy=…)``; None leaves a field out."""

    def post(data: bytes | None, name: str | None = "v", accuracy: object = 90, application: str = "tiny", **more):
        fields = {"name": name, "accuracy": accuracy, **more}
        if data is not None:
            fields["file"] = named(data, "model.onnx")
        return client.post(
            f"/api/v1/applications/{application}/variants/",
            {key: value for key, value in fields.items() if value is not None},
            format="multipart",
        )

    return post


@pytest.fixture
def upload_validation(client, application):
    def put(data: bytes | None, metric: str | None = "top1"):
        fields = {"metric": metric, "file": named(data, "set.npz") if data is not None else None}
        return client.put(
            "/api/v1/applications/tiny/validation-set/",
            {key: value for key, value in fields.items() if value is not None},
            format="multipart",
        )

    return put


@pytest.fixture
def variant(application):
    def make(name: str = "v", state: str = "ready", accuracy: float | None = 90.0, **more) -> models.Variant:
        return models.Variant.objects.create(
            application=application,
            name=name,
            digest=hashlib.sha256(name.encode()).hexdigest(),
            size_bytes=1,
            state=state,
            accuracy=accuracy,
            **more,
        )

    return make


@pytest.fixture
def device(db):
    def make(
        ref: str = "box/cpu0", type: str = "cpu-a", warm: tuple[int, ...] = (), state: str = "up"
    ) -> models.Device:
        node, _ = models.Node.objects.get_or_create(name=ref.split("/")[0], defaults={"state": "approved"})
        return models.Device.objects.create(node=node, ref=ref, kind="cpu", type=type, warm=list(warm), state=state)

    return make


def named(data: bytes, name: str) -> io.BytesIO:
    file = io.BytesIO(data)
    file.name = name
    return file


def npz(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def problem(response, status: int) -> dict[str, str]:
    assert response.status_code == status, response.content[:1000]
    assert response["Content-Type"] == "application/problem+json"
    body = response.json()
    assert set(body) == {"type", "title", "status", "detail", "errors"}
    assert body["status"] == status and body["detail"] and body["title"]
    return {error["field"]: error["detail"] for error in body["errors"]}
