"""One honest message of each kind."""

from workers.protocol import control
from workers.protocol.specs import ApplicationStats, DeviceInfo, DeviceState, DeviceStats, ProfilePoint, VariantStats

INFO = DeviceInfo("box/cpu0", "cpu", "cpu-test-1c", "a core", (0,), None, 2**30, "unix:/box-cpu0")
STATE = DeviceState("box/cpu0", "up", 0, (1,), "")
DONE = control.ProfileDone(
    job=1,
    load_s=0.1,
    memory_bytes=2**20,
    points=(ProfilePoint(1, 0.001, 0.002, 0.001, 20),),
    accuracy=90.0,
    validated_rows=10,
)
COUNTS = ApplicationStats(1, 1, 1, 0, 0, 0, 90.0, 90.0, 1.0, 2.0, {"v": 1}, {16: 1})
DEVICE_SECOND = DeviceStats("box/cpu0", 0.5, 0.0, 0, 2**20, 1, (VariantStats(1, "digits", 1, 1, 0.1),))
GATEWAY_SECOND = control.GatewayStats(
    applications={"digits": COUNTS}, ready=True, serving=("digits",), plan_version=1, config_hash="h"
)
GOOD = {
    "node": (
        control.JoinNode(name="box", machine="m", certificate_request="PEM", devices=(INFO,)),
        control.DeviceStates(devices=(STATE,)),
        control.NodeStats(devices=(DEVICE_SECOND,), jobs=(1,), plan_version=1, config_hash="h"),
        control.Overload(device="box/cpu0", application="digits", arrived=5, refused=2),
        control.Drift(device="box/cpu0", variant=1, ratio=2.0),
        control.FaultReport(device="box/cpu0", variant=1, cause="crashed", detail="why"),
        control.ProfileProgress(job=1, phase="measuring", done=0.5, points=DONE.points),
        DONE,
        control.ProfileFailed(job=1, message="why", retry=True),
    ),
    "gateway": (
        control.JoinGateway(
            name="front", machine="m", certificate_request="PEM", address="http://box:8000", core="box:8002"
        ),
        GATEWAY_SECOND,
        control.Burst(application="digits", rate=5.0, plan_version=1),
        control.Overload(device="", application="digits", arrived=5, refused=2),
    ),
}
