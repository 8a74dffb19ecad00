"""The deployment files match the documentation: probes, grace periods, no cron."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deadletter.server.auth.guards import OPEN
from deadletter.settings import Serve, load_settings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
HEALTH = {"/health/live", "/health/ready"}


def documents() -> list[Any]:
    return [document for file in MANIFESTS for document in yaml.safe_load_all(file.read_text())]


def deployments() -> list[Any]:
    return [one for one in documents() if one["kind"] == "Deployment"]


def container(deployment: Any) -> Any:
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


def test_there_is_something_to_check() -> None:
    assert len(MANIFESTS) == len(UNITS) == len(deployments()) == 2


def test_nothing_is_a_cron_job() -> None:
    kinds = {document["kind"] for document in documents()}

    assert not kinds & {"CronJob", "Job"}
    assert not list((DEPLOY / "systemd").glob("*.timer"))


@pytest.mark.parametrize("deployment", deployments(), ids=lambda d: d["metadata"]["name"])
def test_every_deployment_is_probed_and_has_time_to_end(deployment: Any) -> None:
    found = container(deployment)
    ports = {port["name"] for port in found["ports"]}
    probes = {
        name: found[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    pod = deployment["spec"]["template"]["spec"]

    assert {probe["path"] for probe in probes.values()} == HEALTH
    assert probes["readinessProbe"]["path"] == "/health/ready"
    assert probes["livenessProbe"]["path"] == "/health/live"
    assert {probe["port"] for probe in probes.values()} <= ports
    assert pod["terminationGracePeriodSeconds"] > Serve().grace
    assert pod["enableServiceLinks"] is False  # or DLQ_… variables may appear
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("deployment", deployments(), ids=lambda d: d["metadata"]["name"])
def test_every_deployment_is_scraped_where_it_listens(deployment: Any) -> None:
    said = deployment["spec"]["template"]["metadata"]["annotations"]
    (port,) = container(deployment)["ports"]

    assert said == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port["containerPort"]),
        "prometheus.io/path": "/metrics",
    }


def test_workers_listen_where_they_are_probed_and_scraped() -> None:
    (worker,) = [d for d in deployments() if "worker" in d["metadata"]["name"]]
    found = container(worker)
    given = {env["name"]: env.get("value") for env in found["env"]}
    unit = (DEPLOY / "systemd" / "deadletter-work.service").read_text()

    assert given["DLQ_WORK_HEALTH_HOST"] == "0.0.0.0"
    assert given["DLQ_WORK_HEALTH_PORT"] == str(found["ports"][0]["containerPort"])
    assert "Environment=DLQ_WORK_HEALTH_PORT=8419" in unit.splitlines()


def test_probes_need_no_token() -> None:
    assert {("GET", path) for path in HEALTH} <= OPEN


def test_the_settings_of_the_server_are_good(tmp_path: Path) -> None:
    (settings,) = [one for one in documents() if one["kind"] == "ConfigMap"]
    file = tmp_path / "deadletter.toml"
    file.write_text(settings["data"]["deadletter.toml"])

    serve = load_settings(file, environ={}).serve

    (server,) = [d for d in deployments() if d["metadata"]["name"] == "deadletter"]
    pod = server["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > serve.notice + serve.grace
    assert serve.access == "on"
    (port,) = container(server)["ports"]
    assert port["containerPort"] == serve.port


def test_variables_are_settings() -> None:
    named = [env for d in deployments() for env in container(d)["env"]]
    given = {env["name"]: env["value"] for env in named if "value" in env}

    load_settings(environ={**given, "DLQ_CONFIG": ""})
    assert not [name for name in given if not name.startswith("DLQ_")]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_are_understood_by_systemd(unit: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    copy = tmp_path / unit.name
    # What is started is not installed here.
    copy.write_text(re.sub(r"(?m)^(ExecStart\w*)=.*$", r"\1=/bin/true", unit.read_text()))

    ran = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_end_later_than_the_grace(unit: Path) -> None:
    found = re.search(r"(?m)^TimeoutStopSec=(\d+)$", unit.read_text())

    assert found is not None
    assert int(found[1]) > Serve().grace


def test_the_container_runs_the_server_as_nobody_special() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    instructions = re.findall(r"(?m)^([A-Z]+) ", text)
    sources = re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", text)

    assert instructions[0] == "FROM"
    assert re.search(r"(?m)^USER 10001$", text)
    assert re.search(r"pip wheel .*--no-deps --require-hashes .*-r requirements-image\.lock", text)
    assert 'ENTRYPOINT ["dlq"]' in text
    assert f"EXPOSE {Serve().port}" in text
    for name in " ".join(sources).split():
        assert (ROOT / name).exists(), name


def test_the_servers_for_tests_are_yaml() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]

    assert all("image" in service for service in services.values())
