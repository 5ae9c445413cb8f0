"""Browsers' websockets, under ``ws/console/``."""

from django.urls import path, re_path

from console.consumers import LiveConsumer, unknown_path

urlpatterns = [path("live/", LiveConsumer.serve), re_path(r"", unknown_path)]
