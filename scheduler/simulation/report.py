"""A self-contained HTML page of one or several simulations: nothing is fetched."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from django.template import Context, Engine

TEMPLATES = Path(__file__).parent / "templates"
CAPTIONS = {
    "demand_throughput.png": "Demand and throughput in time",
    "effective_accuracy.png": "Effective accuracy",
    "violations.png": "SLO violations",
}
#: the columns of applications, here and in ``per_application.csv``
BY_APPLICATION = (
    "queries", "in_time", "late", "dropped", "violation_ratio", "effective_accuracy", "max_accuracy_drop_10s",
    "median_latency_ms", "p99_latency_ms",
)  # fmt: skip
_BY_RUN = (
    "violation_ratio", "effective_accuracy", "max_accuracy_drop_10s", "in_time", "late", "dropped",
    "median_latency_ms", "p99_latency_ms", "loads", "solves", "max_solve_s", "wall_s",
)  # fmt: skip


def run(summary: Mapping[str, Any], images: Mapping[str, bytes]) -> str:
    figures = [(_words(key), _text(value)) for key, value in summary.items() if not isinstance(value, Mapping)]
    answered = max(summary["in_time"] + summary["late"], 1)
    return _page(
        f"{summary['scenario']}: {summary['strategy']}, {summary['batching']}, {summary['routing']}",
        [told(summary)],
        images,
        [
            _table("By application", "application", BY_APPLICATION, summary["per_application"].items()),
            {
                "caption": "By variant",
                "head": ["variant", "accuracy", "in time", "late", "share of answers"],
                "rows": [
                    [
                        name,
                        _text(v["accuracy"]),
                        v["in_time"],
                        v["late"],
                        f"{(v['in_time'] + v['late']) / answered:.2%}",
                    ]
                    for name, v in summary["per_variant"].items()
                ],
            },
            {"caption": "All figures", "head": ["figure", "value"], "rows": figures},
        ],
    )


def comparison(summaries: Mapping[str, Mapping[str, Any]], images: Mapping[str, bytes]) -> str:
    first = next(iter(summaries.values()))
    names = list(first["per_application"])
    tables = [_table("Runs", "run", _BY_RUN, summaries.items())]
    for caption, key in (
        ("Violation ratio by application", "violation_ratio"),
        ("Effective accuracy by application", "effective_accuracy"),
    ):
        rows = [
            [label, *(_text(summary["per_application"][name][key]) for name in names)]
            for label, summary in summaries.items()
        ]
        tables.append({"caption": caption, "head": ["run", *names], "rows": rows})
    return _page(f"{first['scenario']}: {', '.join(summaries)}", [_references(first)], images, tables)


def _page(title: str, lines: list[str], images: Mapping[str, bytes], tables: list[dict[str, Any]]) -> str:
    embedded = [
        {"caption": CAPTIONS[name], "data": "data:image/png;base64," + base64.b64encode(image).decode()}
        for name, image in images.items()
    ]
    # An engine of its own: the page is the same with and without Django's settings. Texts only, so that no locale
    # changes a figure.
    for table in tables:
        table["rows"] = [[str(cell) for cell in row] for row in table["rows"]]
    engine = Engine(dirs=[TEMPLATES], autoescape=True)
    context = Context({"title": title, "lines": lines, "images": embedded, "tables": tables}, use_l10n=False)
    return engine.get_template("report.html").render(context)


def _table(caption: str, first: str, keys: Iterable[str], rows: Iterable[tuple[str, Mapping[str, Any]]]) -> dict:
    keys = list(keys)
    return {
        "caption": caption,
        "head": [first, *map(_words, keys)],
        "rows": [[name, *(_text(figures[key]) for key in keys)] for name, figures in rows],
    }


def told(s: Mapping[str, Any]) -> str:
    return (
        f"{s['queries']} queries: {s['in_time']} in time, {s['late']} late, {s['dropped']} dropped "
        f"({s['violation_ratio']:.4%} violations). Effective accuracy {_text(s['effective_accuracy'])}, largest drop "
        f"over 10 s {_text(s['max_accuracy_drop_10s'])}. {_references(s)}"
    )


def _references(s: Mapping[str, Any]) -> str:
    return (
        f"Fluid reference {_text(s['fluid_reference_accuracy'])} with batches within half the SLO "
        f"(serving {_share(s['fluid_reference_served'])} of the demand), "
        f"{_text(s['fluid_reference_slo_accuracy'])} with batches within the SLO itself "
        f"(serving {_share(s['fluid_reference_slo_served'])})."
    )


def _words(key: str) -> str:
    return key.replace("_", " ")


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.2%}"


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
