"""The demo replayed: how many queries miss their SLO and how accurate the answers are, through waves and bursts.

Starts a real appliance with the demo's two applications, waits for their profiles, then drives the demo's load for a
fixed time from this process. Violations are counted strictly at the client: answers after the SLO, refusals, failures
and queries that could not be sent.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from appliance.demo import register
from appliance.demo.capacity import measured
from appliance.demo.manifest import applications
from appliance.demo.replay import replay
from tests.running import RunningAppliance, eventually

SECONDS = 60.0


def measure(seconds: float = SECONDS) -> dict[str, dict]:
    """Counts by application, and ``total``."""
    with tempfile.TemporaryDirectory(prefix="nereus-replay-") as folder:
        appliance = RunningAppliance(Path(folder) / "home")
        try:
            appliance.start()
            token = appliance.credentials["api_token"]
            register.register(appliance.console, token, lambda _: None)
            register.wait_ready(appliance.console, token, timeout_s=600)
            with appliance.inference() as client:
                eventually(lambda: client.get("/v2/health/ready").status_code == 200)
            capacities = measured(appliance.console, token, applications())
            return replay(appliance.http, appliance.credentials["api_key"], seconds, capacities)
        finally:
            appliance.stop()


def render(counts: dict[str, dict]) -> str:
    """A Markdown table."""
    lines = [
        "| application | queries | in time | late | refused | failed | violations | effective accuracy | variants |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, part in counts.items():
        variants = ", ".join(f"{variant} {count}" for variant, count in sorted(part.get("variants", {}).items()))
        accuracy = part["effective_accuracy"]
        lines.append(
            f"| {name} | {part['sent']:,} | {part['in_time']:,} | {part['late']} | {part['refused']} "
            f"| {part['failed']} "
            f"| {part['violation_ratio'] * 100:.2f}% | {'–' if accuracy is None else f'{accuracy:.2f}%'} "
            f"| {variants} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(render(measure()))
