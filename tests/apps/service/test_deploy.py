"""The deployment in `deploy/`: its files agree with each other and with the program.

No container engine runs in the tests: `deploy/prove` starts the same parts without one.
"""

from __future__ import annotations

import configparser
import ipaddress
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main
import yaml
from fastapi.testclient import TestClient

from tacit.apps import cli
from tacit.apps.service.app import make_app
from tacit.apps.service.door import Door, DoorLimits
from tacit.apps.service.problems import KNOWN as PROBLEMS
from tacit.apps.service.server import GRACE
from tacit.apps.service.settings import KNOWN, Settings

from .conftest import SETTINGS
from .postgres import present

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
FILE = DEPLOY / "serve.toml"
OF_COMMANDS = {"TACIT_SETTINGS"}
"""Variables that a command reads, besides those of the settings."""


@pytest.fixture(scope="module", name="compose")
def _compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


@pytest.fixture(scope="module", name="unit")
def _unit() -> Any:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(DEPLOY / "tacit@.service")
    return parser


def parsed(words: list[str]) -> click.Context:
    """Read a command line as the program would, without running it."""
    command: Any = typer.main.get_command(cli.app)
    context = click.Context(command)
    while hasattr(command, "commands"):
        name, command, words = command.resolve_command(context, words)
        context = click.Context(command, info_name=name, parent=context)
    made: click.Context = command.make_context(command.name, list(words))
    return made


def seconds(text: str) -> int:
    return int(re.fullmatch(r"(\d+)s?", str(text))[1])  # type: ignore[index]


# --- settings ------------------------------------------------------------------------------------


def test_the_settings_file_is_valid_and_states_the_defaults() -> None:
    """Whoever reads it learns the defaults; only database, secret and proxy are of this file."""
    found = Settings.gather({}, {}, FILE)
    own = {"db", "secret", "trusted_proxies"}
    for one in found.shown():
        name = one["setting"]
        if name not in own:
            assert found[name] == KNOWN[name].default, name
    assert {name for name in found if found.source(name) != "default"} > own
    assert tomllib.loads(FILE.read_text())["limits"]["unknown_burst"] == 1000


def test_servers_of_the_compose_file_start(compose: dict[str, Any]) -> None:
    servers = [one for name, one in compose["services"].items() if name.startswith("server")]
    assert len(servers) == 2
    for one in servers:
        assert parsed(one["command"]).info_name == "serve"
        variables = {name for name in one["environment"] if name.startswith("TACIT_")}
        assert variables <= {setting.variable for setting in KNOWN.values()} | OF_COMMANDS
        found = Settings.gather({}, one["environment"], FILE)
        assert (found["host"], found["port"]) == ("0.0.0.0", 8000)
        (password,) = one["secrets"]
        assert str(found["db_password_file"]) == f"/run/secrets/{password}"
        assert found["db"].split("/")[2].split("@") == ["tacit", "database"]
        assert "secret:/var/lib/tacit" in one["volumes"]
        assert str(found["secret"]).startswith("/var/lib/tacit/")
        assert seconds(one["stop_grace_period"]) > found["shutdown_seconds"]
        code = one["healthcheck"]["test"][-1]
        compile(code, "healthcheck", "exec")
        assert "127.0.0.1:8000/v1/ready" in code


def test_the_proxy_is_the_one_that_is_trusted(compose: dict[str, Any]) -> None:
    services = compose["services"]
    address = services["proxy"]["networks"]["inside"]["ipv4_address"]
    trusted = services["server-1"]["environment"]["TACIT_TRUSTED_PROXIES"]
    (network,) = compose["networks"]["inside"]["ipam"]["config"]
    assert trusted == address
    assert ipaddress.ip_address(address) in ipaddress.ip_network(network["subnet"])
    assert compose["networks"]["inside"]["internal"] is True
    for name in ("database", "server-1", "server-2"):
        assert "ports" not in services[name]


def test_files_that_are_mounted_or_copied_exist(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./secrets"):
                assert source.removeprefix("./") in (DEPLOY / "up").read_text()
            elif source.startswith("."):
                assert (DEPLOY / source).is_file()
            else:
                assert source in compose["volumes"]
    build = compose["services"]["server-1"]["build"]
    context = (DEPLOY / build["context"]).resolve()
    assert (context / build["dockerfile"]).samefile(DEPLOY / "Containerfile")
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert all((context / one).exists() for one in copied)
    assert {"src", "pyproject.toml", "constraints.txt"} <= set(copied)


def test_the_container_starts_a_command_that_exists() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    words = {
        name: json.loads(line.removeprefix(name))
        for line in lines
        for name in ("ENTRYPOINT", "CMD")
        if line.startswith(name)
    }
    assert words["ENTRYPOINT"] == ["tacit"]
    assert parsed(words["CMD"]).info_name == "serve"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "service" in project["optional-dependencies"]
    base = next(line for line in lines if line.startswith("FROM"))
    named = (ROOT / "constraints.txt").read_text().splitlines()[0]
    assert f"Python {re.search(r'python:([0-9.]+)', base)[1]}" in named  # type: ignore[index]


def test_the_unit_starts_a_command_that_exists(unit: Any) -> None:
    program, *words = shlex.split(unit["Service"]["ExecStart"].replace("%i", "8001"))
    assert program.endswith("/tacit")
    found = parsed(words)
    assert (found.info_name, found.params["port"]) == ("serve", 8001)
    assert Path(found.params["settings"]).name == FILE.name
    assert int(unit["Service"]["TimeoutStopSec"]) > GRACE
    state = unit["Service"]["StateDirectory"]
    assert str(Settings.gather({}, {}, FILE)["secret"]).startswith(f"/var/lib/{state}/")


def test_the_proxy_passes_on_to_the_servers(compose: dict[str, Any]) -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    assert set(re.findall(r"server (server-\d):8000 ", text)) == {
        name for name in compose["services"] if name.startswith("server")
    }
    assert "access_log off;" in text
    # Whatever a sender claims is replaced.
    assert text.count("X-Forwarded-For $remote_addr;") == 1
    assert "$proxy_add_x_forwarded_for" not in text
    for name in ("server.pem", "server.key"):
        assert f"/etc/nginx/tls/{name};" in text
        assert f"secrets/tls/{name}" in (DEPLOY / "up").read_text()
    kept = int(re.search(r"keepalive_timeout (\d+)s; # shorter", text)[1])  # type: ignore[index]
    assert kept < DoorLimits().seconds


# --- monitoring ----------------------------------------------------------------------------------

_STRING, _RANGE = re.compile(r'"[^"]*"'), re.compile(r"\[[^\]]*\]")
_SELECTOR = re.compile(r"([a-z_]+)\{([^}]*)\}")
_GROUP = re.compile(r"\b(?:by|without) \([^)]*\)")
_WORD = re.compile(r"\b[a-z_]+\b(?! *\()")
_OF_PROMETHEUS = {"up"}
_OPERATORS = {"or", "and", "unless"}


def metrics_of(expression: str) -> set[str]:
    """Names of the metrics in a PromQL expression."""
    bare = _GROUP.sub("", _SELECTOR.sub(r"\1", _RANGE.sub("", expression)))
    return set(_WORD.findall(_STRING.sub("", bare))) - _OPERATORS


def labels_of(expression: str) -> set[tuple[str, str]]:
    """Pairs of a metric and a label that is asked of it."""
    return {
        (name, label)
        for name, inside in _SELECTOR.findall(_STRING.sub('""', expression))
        for label in re.findall(r"([a-z_]+)\s*(?:=|!)", inside)
    }


@pytest.fixture(scope="module", name="expressions")
def _expressions() -> list[str]:
    rules = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yml").read_text())
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((DEPLOY / "monitoring" / "grafana.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(alerts) >= 8
    assert len(shown) >= 12
    return alerts + shown


@pytest.fixture(name="exported")
def _exported(store: Any, mechanism: Any, digits: Any) -> str:
    """What a server says after a stored, a refused and an unread request."""
    images, labels = digits
    campaign, _ = store.create(mechanism, **SETTINGS)
    with TestClient(make_app(store)) as http:
        door = Door(DoorLimits(), http.app.state.service.metrics)  # type: ignore[attr-defined]
        door.refused("crowded")
        report = mechanism.release(images[:1], labels[:1]).columns["symbols"].tolist()[0]
        body = {"artifact": campaign.fingerprint, "report": {"symbols": report}}
        for token in (*store.invite(campaign.id, 1), "unknown"):
            headers = {"Authorization": f"Bearer {token}"}
            http.post(f"/v1/campaigns/{campaign.id}/reports", json=body, headers=headers)
        text: str = http.get("/v1/metrics").text
    return text


def test_alerts_and_dashboard_name_metrics_that_exist(
    expressions: list[str], exported: str
) -> None:
    samples = set(re.findall(r"^([a-z_]+)[ {]", exported, re.MULTILINE))
    for expression in expressions:
        named = metrics_of(expression)
        assert named
        assert named <= samples | _OF_PROMETHEUS, expression
        for name, label in labels_of(expression):
            found = re.search(rf'^{name}{{.*\b{label}="', exported, re.MULTILINE)
            assert found or label in ("job", "instance"), (name, label)


def test_alerts_and_dashboard_name_reasons_and_routes_that_exist(
    expressions: list[str], exported: str
) -> None:
    door = re.findall(
        r'refused\("([a-z-]+)"\)', (ROOT / "src/tacit/apps/service/door.py").read_text()
    )
    routes = re.findall(r'route="([^"]+)"', exported)
    for expression in expressions:
        for reason in re.findall(r'reason="([^"]+)"', expression):
            assert reason in PROBLEMS or reason in door
        for pattern in re.findall(r'route=~"([^"]+)"', expression):
            assert any(re.fullmatch(pattern, route) for route in routes)


def test_a_metric_that_does_not_exist_would_be_found() -> None:
    text = 'sum by (le) (rate(tacit_nothing{route=~"a"}[5m])) > 1 or up == 0'
    assert metrics_of(text) == {"tacit_nothing", "up"}
    assert labels_of(text) == {("tacit_nothing", "route")}


def test_every_process_is_asked(compose: dict[str, Any]) -> None:
    plain = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yml").read_text())
    (job,) = plain["scrape_configs"]
    assert job["metrics_path"] == "/v1/metrics"
    names = [target.split(":")[0] for target in job["static_configs"][0]["targets"]]
    assert names == [name for name in compose["services"] if name.startswith("server")]
    assert (DEPLOY / "monitoring" / plain["rule_files"][0]).is_file()


def test_the_operators_page_names_every_setting_and_metric(exported: str) -> None:
    page = (ROOT / "docs" / "operating.md").read_text()
    named = re.findall(r"^# TYPE (\S+)", exported, re.MULTILINE)
    assert len(named) > 10
    assert [name for name in (*KNOWN, *named) if f"`{name}`" not in page] == []


# --- the whole -----------------------------------------------------------------------------------


@pytest.mark.heavy
def test_the_deployment_works_without_containers() -> None:
    """PostgreSQL, two servers and nginx: kills, failures, limits and logs; see deploy/prove."""
    path = "/usr/sbin:/usr/local/sbin"
    if not present() or not (shutil.which("nginx") or shutil.which("nginx", path=path)):
        pytest.skip("PostgreSQL or nginx is not here: apt-get install postgresql nginx-light")
    command = [sys.executable, str(DEPLOY / "prove"), "--people", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "FAIL" not in done.stdout
    assert done.stdout.count("\nok ") > 25
