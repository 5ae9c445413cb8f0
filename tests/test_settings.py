"""Settings are parsed strictly and checked together; mistakes are named with their variable and limit."""

import os
import re
import subprocess
import sys

import pytest

from tests.running import ROOT
from workers.addresses import Address
from workers.environ import NAME
from workers.settings import Settings, SettingsError, executor_port_problems

BAD = [
    ("HTTP", "8000", "HOST:PORT"),
    ("HTTP", "127.0.0.1:0", "1 to 65535"),
    ("GRPC", "127.0.0.1:70000", "1 to 65535"),
    ("GATEWAYS", "0", "a whole number from 1 to 64"),
    ("GATEWAYS", "two", "a whole number from 1 to 64"),
    ("CONSOLE", "http://127.0.0.1:8080", "HOST:PORT"),
    ("NODE_HTTP", "", None),
    ("NODE_HTTP", "127.0.0.1:8000", "another port than NEREUS_HTTP"),
    ("CONTROL_URL", "ftp://box", "http://"),
    ("CPU_DEVICES", "two", "COUNTxCORES"),
    ("CPU_DEVICES", "0x1", "COUNTxCORES"),
    ("GPU", "maybe", "1 or 0"),
    ("DATABASE_URL", "mysql://x", "postgresql://"),
    ("REDIS_URL", "localhost:6379", "redis://"),
    ("MAX_UPLOAD_MB", "0", "from 1 to 16384"),
    ("MAX_UPLOAD_MB", "12.5", "a whole number"),
    ("MAX_REQUEST_MB", "lots", "a whole number from 1 to 1024"),
    ("PLAN_PERIOD_S", "0.5", "from 1 to 3600"),
    ("PROMISE_PERIOD_S", "5", "from 10 to 600"),
    ("DEMAND_QUANTILE", "nan", "from 0.5 to 0.999"),
    ("PROFILE_SHARE", "5%", "from 0.01 to 0.5"),
    ("DEVICE_COSTS", "cpu=1,cuda=0", "from 0.001 to 1000000, and 'cuda=0' is not such"),
    ("DEVICE_COSTS", "16", "NAME=FACTOR"),
    ("LOG_LEVEL", "loud", "one of debug, info, warning, error"),
    ("NODE_NAME", "a box/..", "1 to 63 letters"),
    ("SOLVE_S", "0", "from 0.1 to 600"),
    ("TLS", "maybe", "one of auto, on, off"),
    ("TLS_CERT", "/no/such/file", "a file that can be read"),
    ("CA_FILE", "/no/such/file", "a file that can be read"),
    ("CONTROL_URL", "http://10.0.0.5:8080", "https:// unless its host is loopback"),
    ("CONTROL_URL", "https://", "http(s)://HOST"),
    ("CONTROL_URL", "https://box:port", "http(s)://HOST"),
    ("CONTROL_FINGERPRINT", "sha256:12", "sha256: and 64 hexadecimal digits"),
    ("CONTROL_FINGERPRINT", "ab" * 32, "empty where NEREUS_CONTROL_URL is not https://"),
    ("PUBLIC_URL", "box.example.com", "http:// or https://"),
    ("PUBLIC_URL", "https://box.example.com/console", "with nothing behind it"),
    ("PUBLIC_URL", "https://user@box.example.com", "with nothing behind it"),
    ("PUBLIC_URL", "https://box:0", "with nothing behind it"),
    ("TRUSTED_PROXIES", "10.0.0.0/24, proxy", "IP addresses or networks"),
    ("ADDRESS", "box:8002", "without a port"),
    ("ADDRESS", "0.0.0.0", "a wildcard is not"),
    ("CORE", "8002", "auto, off or HOST:PORT"),
    ("CORE", "0.0.0.0:8000", "another port than NEREUS_HTTP"),
    ("EXECUTORS", "on", "auto, off or HOST:PORT"),
    ("EXECUTORS", "0.0.0.0:8090", "takes the ports 8090 to 8090, one a device, of which NEREUS_NODE_HTTP has 8090"),
    ("SOLV_S", "1.05", "did you mean NEREUS_SOLVE_S?"),
]


@pytest.mark.parametrize(("name", "value", "says"), BAD)
def test_a_bad_value_is_named_with_its_limit(name, value, says):
    environ = {f"NEREUS_{name}": value}
    if says is None:
        assert Settings.from_environ(environ) == Settings.from_environ({})
        return
    with pytest.raises(SettingsError) as caught:
        Settings.from_environ(environ)
    assert f"NEREUS_{name}" in str(caught.value)
    assert says in str(caught.value)


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(SettingsError) as caught:
        Settings.from_environ({"NEREUS_HTTP": "x", "NEREUS_SOLVE_S": "0", "NEREUS_NONE": "1"})
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("COMPILED", "the query path is no longer compiled"),
        ("FORECASTER", "demand is forecast by level and trend; simulations have the other forecasters"),
    ],
)
def test_a_retired_variable_warns_and_stops_nothing(name, says):
    (warning,) = Settings.from_environ({f"NEREUS_{name}": "0"}).warnings
    assert warning == f"NEREUS_{name}: no longer used; {says}"


def test_a_retired_variable_is_not_suggested():
    with pytest.raises(SettingsError) as caught:
        Settings.from_environ({"NEREUS_ROUTINGS": "shares"})
    assert "NEREUS_ROUTING?" not in str(caught.value)


@pytest.mark.parametrize("name", ["best", "ramsis-by-models"])
def test_a_stack_that_nobody_can_serve_with_stops_the_start(name):
    with pytest.raises(SettingsError, match=f"NEREUS_STACK='{name}': must be one of nereus, clipper-ha,"):
        Settings.from_environ({"NEREUS_STACK": name})


def test_costs_of_devices_are_read_by_name():
    assert Settings.from_environ({}).device_costs == {}
    read = Settings.from_environ({"NEREUS_DEVICE_COSTS": "cpu=1, cuda=16,a=b = 2.5"}).device_costs
    assert read == {"cpu": 1.0, "cuda": 16.0, "a=b": 2.5}


def test_an_ipv6_address_is_understood():
    assert Settings.from_environ({"NEREUS_HTTP": "[::1]:9000"}).http.url == "http://[::1]:9000"


@pytest.mark.parametrize(
    ("http", "host", "url"),
    [
        ("0.0.0.0:8000", "10.0.0.7", "http://10.0.0.7:8000"),
        ("[::]:8000", "fd00::7", "http://[fd00::7]:8000"),
        ("0.0.0.0:8000", "", "http://127.0.0.1:8000"),
        ("10.0.0.9:8000", "10.0.0.7", "http://10.0.0.9:8000"),
    ],
)
def test_clients_of_other_boxes_get_an_address_that_they_reach(http, host, url):
    settings = Settings.from_environ(
        {"NEREUS_HTTP": http, "NEREUS_TLS": "off", "NEREUS_CONTROL_URL": "http://10.0.0.5:8080"}
    )
    assert settings.http.url_at(host) == url


CLUSTERED = {"CONSOLE": "0.0.0.0:8080"}
MEMBER = {"CONTROL_URL": "https://10.0.0.5:8080"}


@pytest.mark.parametrize(
    ("variables", "core", "executors"),
    [
        ({}, "None", "None"),
        (CLUSTERED, "0.0.0.0:8002", "0.0.0.0:8100"),
        (MEMBER, "0.0.0.0:8002", "0.0.0.0:8100"),
        ({"CONTROL_URL": "https://localhost:8080"}, "None", "None"),
        (MEMBER | {"CORE": "off", "EXECUTORS": "off"}, "None", "None"),
        ({"CORE": "[fd00::5]:9002", "EXECUTORS": "10.0.0.6:9100"}, "[fd00::5]:9002", "10.0.0.6:9100"),
    ],
)
def test_boxes_of_a_cluster_alone_listen_for_other_boxes(variables, core, executors):
    settings = Settings.from_environ({f"NEREUS_{name}": value for name, value in variables.items()})
    assert (str(settings.core), str(settings.executors)) == (core, executors)


def test_executors_have_a_port_each_that_no_other_setting_has():
    assert executor_port_problems(Address("0.0.0.0", 8088), 4, {8090: "NODE_HTTP"}) == [
        "NEREUS_EXECUTORS=0.0.0.0:8088: takes the ports 8088 to 8091, one a device, of which NEREUS_NODE_HTTP has 8090"
        "; choose another first port"
    ]
    assert "65535 is the last" in executor_port_problems(Address("0.0.0.0", 65534), 3, {})[0]
    assert executor_port_problems(Address("::", 8086), 4, {8090: "NODE_HTTP"}) == []


def test_gateways_have_names_that_last_and_that_a_member_may_have():
    def names(**settings: str) -> tuple[str, ...]:
        return Settings.from_environ({f"NEREUS_{name}": value for name, value in settings.items()}).gateway_names

    assert names(NODE_NAME="box") == ("box-gateway",)
    assert names(NODE_NAME="box", GATEWAYS="3") == ("box-gateway", "box-gateway-2", "box-gateway-3")
    long = names(NODE_NAME="n" * 63, GATEWAYS="64")
    assert len(set(long)) == 64 and all(re.fullmatch(NAME, name) for name in long)
    assert long[:2] == names(NODE_NAME="n" * 63, GATEWAYS="2")
    assert set(long).isdisjoint(names(NODE_NAME="n" * 62 + "m", GATEWAYS="64"))


def test_a_deep_home_still_has_sockets_whose_paths_fit(tmp_path):
    deep = tmp_path / ("x" * 90)
    settings = Settings.from_environ({"NEREUS_HOME": str(deep)})
    assert len(str(settings.socket_folder / ("n" * 30 + "-cpu0.sock"))) <= 107
    settings.make_folders()
    assert settings.socket_folder.stat().st_mode & 0o777 == 0o700
    settings.socket_folder.rmdir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's folder")
def test_another_users_home_is_refused_as_it_is(tmp_path):
    tmp_path.chmod(0o755)
    os.chown(tmp_path, 65534, -1)
    with pytest.raises(SettingsError, match="must belong to the user"):
        Settings.from_environ({"NEREUS_HOME": str(tmp_path)}).make_folders()
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("module", [["manage.py", "check"], ["-m", "workers.node"], ["-m", "workers.gateway"]])
def test_every_process_refuses_to_start_and_says_why(module, tmp_path):
    environment = {**os.environ, "NEREUS_HOME": str(tmp_path), "NEREUS_SOLVE_S": "0", "NEREUS_GPU": "perhaps"}
    done = subprocess.run(
        [sys.executable, *module], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert "NEREUS_SOLVE_S='0': must be a number from 0.1 to 600" in output
    assert "NEREUS_GPU='perhaps': must be 1 or 0" in output
    assert "Traceback" not in output


TLS = [
    ({}, (False, False, False)),
    ({"HTTP": "0.0.0.0:8000"}, (True, False, False)),
    ({"HTTP": "0.0.0.0:8000", "GRPC": "[::]:8001", "CONSOLE": "box:8080"}, (True, True, True)),
    ({"HTTP": "0.0.0.0:8000", "CONSOLE": "10.1.2.3:8080", "TLS": "off"}, (False, False, False)),
    ({"TLS": "on"}, (True, True, True)),
    ({"TLS_CERT": "manage.py", "TLS_KEY": "manage.py"}, (True, True, True)),
    ({"HTTP": "localhost:8000", "GRPC": "127.9.9.9:8001", "CONSOLE": "[::1]:8080"}, (False, False, False)),
]


@pytest.mark.parametrize(("given", "encrypted"), TLS)
def test_addresses_beyond_loopback_are_encrypted_unless_asked_otherwise(given, encrypted, monkeypatch):
    monkeypatch.chdir(ROOT)
    settings = Settings.from_environ({f"NEREUS_{name}": value for name, value in given.items()})
    assert (settings.http.tls, settings.grpc.tls, settings.console.tls) == encrypted
    assert (
        settings.console.url.startswith("https://") == settings.console.tls == settings.control_url.startswith("https")
    )
    assert settings.tls_used == any(encrypted)


def test_certificate_and_key_belong_together_and_exclude_tls_off(monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SettingsError, match="NEREUS_TLS_KEY=None: must be set too"):
        Settings.from_environ({"NEREUS_TLS_CERT": "manage.py"})
    with pytest.raises(SettingsError, match="NEREUS_TLS='off': must be auto or on where NEREUS_TLS_CERT is set"):
        Settings.from_environ({"NEREUS_TLS_CERT": "manage.py", "NEREUS_TLS_KEY": "manage.py", "NEREUS_TLS": "off"})
    plain = Settings.from_environ({"NEREUS_CONTROL_URL": "http://10.0.0.5:8080", "NEREUS_TLS": "off"})
    assert plain.control_url == "http://10.0.0.5:8080"
