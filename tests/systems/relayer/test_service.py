"""The service as it is deployed: processes, an emulated cloud, and people on call."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import yaml

from deadletter.observe.cloudwatch import cloudwatch
from deadletter.testing.fakes import eventually
from observe.test_cloudwatch import Cloud, states, sum_of
from relayer.__main__ import main
from relayer.settings import DEAD_QUEUE, QUEUE, read
from servers import Server
from servers.fixtures import serve
from servers.sqs import Sqs
from stage import HERE, Stage
from systems.relayer.rig import (
    SOON,
    Relay,
    Stub,
    address,
    answers,
    body_of,
    quick_session,
    settings_for,
)

pytestmark = pytest.mark.xdist_group("sqs_server")
WAIT = f"deadletter-dead-letters-wait-{QUEUE}"


@pytest.fixture(scope="module")
def cloud_server() -> Iterator[Server]:
    yield from serve(Cloud, [])


class Service:
    """The processes, and the environment that they and people share."""

    def __init__(self, stage: Stage, environment: dict[str, str]) -> None:
        port, health = stage.port(), stage.port()
        self.environment = environment | {
            "PORT": str(port),
            "HEALTH_PORT": str(health),
            "METRICS_INTERVAL_MS": "200",
            "DLQ_URL": read(environment).sqs,
        }
        self.health = f"http://127.0.0.1:{health}/health"
        self.api_url = f"http://127.0.0.1:{port}"
        self.api = stage.process("relayer", "api", env=self.environment)
        stage.until("the API", lambda: answers(f"{self.api_url}/health"))
        self.consumer = stage.process("relayer", "consumer", env=self.environment)
        stage.until("the consumer", lambda: answers(f"{self.health}/ready"))

    def dlq(self, *words: str) -> str:
        """What a person on call types, and sees."""
        return run("-m", "deadletter.cli", *words, env=self.environment).stdout


def run(*words: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(HERE), "COLUMNS": "120", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def service(
    cloud_server: Server, stub_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("service")
    environment = settings_for(cloud_server, stub_url, place)
    with Stage() as stage:
        yield Service(stage, environment | {"AWS_ENDPOINT_URL": cloud_server.url})


@pytest.fixture
async def relay(service: Service, cloud_server: Server, stub: Stub) -> AsyncIterator[Relay]:
    """The same tools as elsewhere, on the service's own queues and API."""
    async with (
        quick_session().create_client(
            "sqs", region_name=Sqs.region, endpoint_url=cloud_server.url
        ) as raw,
        Relay.opened(service.environment, raw, stub) as relay,
        httpx.AsyncClient(base_url=service.api_url) as client,
    ):
        relay.api = client
        yield relay


@pytest.fixture
async def cloud(cloud_server: Server) -> AsyncIterator[Any]:
    async with cloudwatch(region=Sqs.region, endpoint=cloud_server.url) as client:
        yield client


async def test_a_message_that_fails_three_times_is_ended_counted_and_looked_into(
    service: Service, relay: Relay, cloud: Any
) -> None:
    made = service.dlq(
        *("alarms", "cloudwatch", "--put", "--region", Sqs.region),
        *("--source", QUEUE, "--queue", DEAD_QUEUE),
        *("--endpoint", service.environment["AWS_ENDPOINT_URL"]),
    )
    quiet = await states(cloud)
    to = address()
    await relay.stub.fail(to, status=503, message="the pool is busy", times=3)

    id_ = await relay.ask(to=to)
    told = await relay.becomes(id_, "failed")
    await relay.stub.fail(to, status=422, message="never", times=1)
    await relay.becomes(await relay.ask(to=to), "failed")
    await relay.drained(QUEUE)
    await relay.drained(DEAD_QUEUE)

    assert await relay.stub.requests(id_) == 3
    assert told["errorMessage"] == "the pool is busy"
    assert "4 alarms" in made
    found = (await cloud.describe_alarms())["MetricAlarms"]
    (depth,) = [one for one in found if one["Namespace"] == "AWS/SQS"]
    assert depth["Dimensions"] == [{"Name": "QueueName", "Value": DEAD_QUEUE}]
    assert (depth["MetricName"], depth["ComparisonOperator"], depth["Threshold"]) == (
        "ApproximateNumberOfMessagesVisible",
        "GreaterThanThreshold",
        0,
    )

    async def rings() -> bool:
        return (await states(cloud))[WAIT] == "ALARM"

    async def counted() -> bool:
        kinds = {"RETRYABLE": "transient", "NON_RETRYABLE": "permanent"}
        sums = [
            (await sum_of(cloud, "Errors", Category=kind, Trouble=trouble))["sum"]
            for kind, trouble in kinds.items()
        ]
        return sums == [3, 1]

    assert quiet[WAIT] != "ALARM"
    await eventually(rings, within=SOON)
    await eventually(counted, within=SOON)
    assert (await sum_of(cloud, "ProcessingLatency", Mailbox=DEAD_QUEUE))["count"] == 1
    assert (await sum_of(cloud, "OpenLetters", Source=QUEUE))["most"] == 1
    assert (await sum_of(cloud, "MessagesDeadLettered", Source=QUEUE))["sum"] == 1

    listed = service.dlq("list", f"business_key:{id_}")
    assert "the pool is busy" in listed
    assert "pending" in listed
    sent = service.dlq(
        *("replay", f"business_key:{id_}", "--yes", "--wait", "20"),
        *("--reason", "worth a million"),
    )
    assert "1  handled" in sent
    assert (await relay.becomes(id_, "submitted"))["errorMessage"] is None


async def test_both_consumers_are_one_process_that_ends_when_told(
    service: Service, relay: Relay
) -> None:
    """SIGTERM ends the polling of both, and the process with it."""
    await relay.becomes(await relay.ask(), "submitted")
    await relay.put(body_of("dead-1"), DEAD_QUEUE)
    await relay.becomes("dead-1", "failed")
    ready = f"{service.health}/ready"
    was_ready = answers(ready)

    os.kill(service.consumer.pid, signal.SIGTERM)
    await eventually(lambda: not answers(ready), within=SOON)
    await relay.put(body_of("dead-2"), DEAD_QUEUE)  # the last poll may still bring it
    await eventually(lambda: service.consumer.code is not None, within=SOON)

    assert was_ready
    assert service.consumer.code == 0
    await relay.ask()
    assert await relay.depth(DEAD_QUEUE) == 1
    assert await relay.depth(QUEUE) == 1
    assert await relay.table.get("dead-2") is None


@pytest.mark.parametrize(("which", "missing"), [("main", "DLQ consumer"), ("dlq", "worker")])
def test_one_consumer_alone_is_refused(
    which: str, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["consumer", which])

    said = capsys.readouterr().err
    assert code == 2
    assert "worker and DLQ consumer in the same process" in said
    assert f"start the {missing} as well" in said


def test_the_reprocessor_is_deployed_as_a_service_not_a_cron_job() -> None:
    file = HERE / "relayer" / "kubernetes.yaml"
    documents = list(yaml.safe_load_all(file.read_text()))
    deployments = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in documents
        if one["kind"] == "Deployment"
    }
    (settings,) = [one["data"] for one in documents if one["kind"] == "ConfigMap"]

    kinds = {one["kind"] for one in documents}
    assert kinds == {"Deployment", "ConfigMap"}
    (consumer,) = deployments["relay-consumer"]["containers"]
    assert consumer["command"] == ["python", "-m", "relayer", "consumer"]
    assert consumer["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert consumer["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    how = read(settings).profile.dlq_consumer
    assert how is not None
    assert deployments["relay-consumer"]["terminationGracePeriodSeconds"] > how.wait


def test_the_queues_and_the_table_can_be_made_beforehand(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    codes = [main([word]) for word in ("queues", "migrate", "migrate", "everything")]

    said = capsys.readouterr()
    assert codes == [0, 0, 0, 2]
    assert said.out == "4 migrations applied\n0 migrations applied\n"
    assert "python -m relayer consumer" in said.err
