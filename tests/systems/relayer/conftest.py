"""What the relayer's tests share: the stub, queues of their own, and the parts."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from deadletter.runtime.registration import WorkerOptions
from servers import Server
from servers.sqs import Sqs
from stage import Stage
from systems.relayer.rig import KEYS, Relay, Stub, answers, quick_session, settings_for


@pytest.fixture(scope="session")
def stub_url() -> Iterator[str]:
    with Stage() as stage:
        port = stage.port()
        stage.process("relayer.stub", env={"STUB_PORT": str(port)})
        url = f"http://127.0.0.1:{port}"
        stage.until("the stub answers", lambda: answers(f"{url}/requests"))
        yield url


@pytest.fixture
async def stub(stub_url: str) -> AsyncIterator[Stub]:
    async with httpx.AsyncClient(base_url=stub_url) as client:
        yield Stub(client)
        await client.delete("/failures")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    for module in ("deadletter.brokers.sqs.engine", "deadletter.observe.cloudwatch"):
        monkeypatch.setattr(f"{module}.get_session", quick_session)
    # Stopping takes as long as a long poll that has just begun.
    hasty = partial(WorkerOptions, wait=0.2)
    monkeypatch.setattr("deadletter.handler_registry.WorkerOptions", hasty)


@pytest.fixture
def environment(sqs_server: Server, stub_url: str, tmp_path: Path) -> dict[str, str]:
    """The service's own, with queues that nobody else uses and short waits."""
    return settings_for(sqs_server, stub_url, tmp_path)


@pytest.fixture
async def raw(sqs_server: Server) -> AsyncIterator[Any]:
    """SQS as anybody sees it."""
    async with quick_session().create_client(
        "sqs", region_name=Sqs.region, endpoint_url=sqs_server.url
    ) as client:
        yield client


@pytest.fixture
async def relay(environment: dict[str, str], raw: Any, stub: Stub) -> AsyncIterator[Relay]:
    """The parts of the relayer, on queues of their own."""
    async with Relay.opened(environment, raw, stub) as relay:
        yield relay
