"""One Prometheus page from the pages of several processes.

Each process's samples are marked with a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]):
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def merge(own: str, pages: Mapping[str, str], label: str = "device") -> str:
    """Merge pages of Prometheus text, with a label for each page beyond the first.

    ``own`` stays unchanged; ``label`` is added to all samples of ``pages`` (text by label value). Each family's HELP
    and TYPE stand once. A family whose type differs between pages keeps the first's.

    Raises:
        ValueError: a page is not Prometheus text.
    """
    families: dict[str, Metric] = {}
    for value, text in [(None, own), *pages.items()]:
        for family in text_string_to_metric_families(text):
            merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                labels = sample.labels if value is None else {**sample.labels, label: value}
                merged.samples.append(sample._replace(labels=labels))
    return generate_latest(_Families(families.values())).decode()
