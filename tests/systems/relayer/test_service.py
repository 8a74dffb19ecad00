"""The service as it is deployed: processes, an emulated cloud, and people on call."""

import os
import re
import signal
import subprocess
import sys
import time
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
        making = stage.process("relayer", "queues", "--create", env=self.environment)
        stage.until("the queues", lambda: making.code is not None)
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


async def failed(relay: Relay, message: str = "the pool is busy") -> str:
    """Have a transaction relayed that fails three times, and wait for its end; its id."""
    to = address()
    await relay.stub.fail(to, status=503, message=message, times=3)
    id_ = await relay.ask(to=to)
    await relay.becomes(id_, "failed")
    await relay.drained(DEAD_QUEUE)
    return id_


async def test_a_message_that_fails_three_times_is_sent_once_and_asked_three_times(
    relay: Relay,
) -> None:
    id_ = await failed(relay)

    assert await relay.stub.requests(id_) == 3


async def test_after_three_failures_the_transaction_is_failed(relay: Relay) -> None:
    id_ = await failed(relay)
    told = await relay.status(id_)

    assert (told["status"], told["errorCategory"]) == ("failed", "RETRYABLE")
    assert told["errorMessage"] == "the pool is busy"


async def test_after_its_end_the_message_is_in_no_queue(relay: Relay) -> None:
    await failed(relay)

    assert await relay.depth(DEAD_QUEUE) == 0
    await relay.drained(QUEUE)


async def test_alarms_watch_the_dead_letter_queue_and_the_open_letters(
    service: Service, relay: Relay, cloud: Any
) -> None:
    made = service.dlq(
        *("alarms", "cloudwatch", "--put", "--region", Sqs.region),
        *("--source", QUEUE, "--queue", DEAD_QUEUE),
        *("--endpoint", service.environment["AWS_ENDPOINT_URL"]),
    )
    found = (await cloud.describe_alarms())["MetricAlarms"]
    (depth,) = [one for one in found if one["Namespace"] == "AWS/SQS"]

    assert "4 alarms" in made
    assert depth["Dimensions"] == [{"Name": "QueueName", "Value": DEAD_QUEUE}]
    assert (depth["MetricName"], depth["ComparisonOperator"], depth["Threshold"]) == (
        "ApproximateNumberOfMessagesVisible",
        "GreaterThanThreshold",
        0,
    )
    await failed(relay)

    async def rings() -> bool:
        return (await states(cloud))[WAIT] == "ALARM"

    await eventually(rings, within=SOON)


async def test_messages_in_the_dead_letter_queue_are_counted(
    service: Service, relay: Relay, cloud: Any
) -> None:
    """While the DLQ consumer cannot finish one, it is counted; before, there was none."""

    async def most() -> float:
        return (await sum_of(cloud, "DeadLetterQueueMessages", Mailbox=DEAD_QUEUE))["most"]

    async def is_counted() -> bool:
        return await most() == 2

    await relay.database.run("ALTER TABLE transactions RENAME TO gone")
    for number in range(2):
        await relay.put(body_of(f"count-{number}"), DEAD_QUEUE)
    await eventually(is_counted, within=SOON)
    await relay.database.run("ALTER TABLE gone RENAME TO transactions")
    await relay.drained(DEAD_QUEUE)

    assert await most() == 2


async def test_the_time_from_death_to_its_end_is_measured(relay: Relay, cloud: Any) -> None:
    before = await sum_of(cloud, "ProcessingLatency", Mailbox=DEAD_QUEUE)
    began = time.monotonic()
    await failed(relay)
    took = time.monotonic() - began

    async def is_measured() -> bool:
        now = await sum_of(cloud, "ProcessingLatency", Mailbox=DEAD_QUEUE)
        return now["count"] > before["count"]

    await eventually(is_measured, within=SOON)
    now = await sum_of(cloud, "ProcessingLatency", Mailbox=DEAD_QUEUE)
    assert now["count"] == before["count"] + 1
    assert 0 < now["sum"] - before["sum"] < took


async def test_errors_are_counted_by_their_category(relay: Relay, cloud: Any) -> None:
    kinds = {"RETRYABLE": "transient", "NON_RETRYABLE": "permanent"}

    async def sums() -> list[float]:
        return [
            (await sum_of(cloud, "Errors", Category=kind, Trouble=trouble))["sum"]
            for kind, trouble in kinds.items()
        ]

    retryable, permanent = await sums()
    await failed(relay)
    to = address()
    await relay.stub.fail(to, status=422, message="never", times=1)
    await relay.becomes(await relay.ask(to=to), "failed")

    async def counted() -> bool:
        return await sums() == [retryable + 3, permanent + 1]

    await eventually(counted, within=SOON)


async def test_a_person_on_call_reads_why_it_failed(service: Service, relay: Relay) -> None:
    id_ = await failed(relay, "the pool is on fire")

    listed = service.dlq("list", f"business_key:{id_}")

    assert "the pool is on fire" in listed
    assert "pending" in listed


async def test_a_person_on_call_sends_back_what_matters(service: Service, relay: Relay) -> None:
    id_ = await failed(relay)

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


def test_the_table_can_be_made_beforehand(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    codes = [main([word]) for word in ("migrate", "migrate", "everything")]

    said = capsys.readouterr()
    assert codes == [0, 0, 2]
    assert said.out == "4 migrations applied\n0 migrations applied\n"
    assert "python -m relayer consumer" in said.err


def test_the_image_of_the_deployments_is_one_that_the_project_builds() -> None:
    """Each file says with which tag it is built, and from which other image."""
    files = [HERE / "relayer" / "Containerfile", HERE.parent / "deploy" / "Containerfile"]
    built = {
        re.findall(r"^# podman build .*-t (\S+) \.$", f.read_text(), re.MULTILINE)[-1]: f
        for f in files
    }
    documents = yaml.safe_load_all((HERE / "relayer" / "kubernetes.yaml").read_text())
    images = {
        container["image"]
        for one in documents
        if one["kind"] == "Deployment"
        for container in one["spec"]["template"]["spec"]["containers"]
    }

    (image,) = images
    name = image.partition(":")[0]
    text = built[name].read_text()
    base = re.findall(r"^FROM (\S+)$", text, re.MULTILINE)[-1]
    (source,) = re.findall(r"^COPY (\S+) \S+$", text, re.MULTILINE)
    assert built[base] == files[1]
    assert (HERE.parent / source / "__main__.py").exists()
    locked = (HERE.parent / "requirements-image.lock").read_text()
    for needed in ("aiobotocore", "asyncpg", "httpx", "litestar", "msgspec", "uvicorn"):
        assert f"\n{needed}==" in f"\n{locked}", needed
