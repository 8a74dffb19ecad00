"""GET /metrics: metrics of the office and the server, and access to them."""

from collections.abc import AsyncIterator

import pytest
from litestar import Litestar
from litestar.testing import AsyncTestClient
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from deadletter.core.access import Role
from deadletter.core.events import Stalled
from deadletter.observe.metrics import Metrics
from deadletter.server import health
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.server.startup import open_context
from deadletter.settings import Serve, Settings
from deadletter.system import SystemClock, SystemDice
from office.making import make_letter
from server.conftest import token

Client = AsyncTestClient[Litestar]


def values(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
async def strangers(guarded: ServerContext) -> AsyncIterator[Client]:
    async with AsyncTestClient(build(guarded), base_url="http://127.0.0.1") as client:
        yield client


async def test_the_office_is_shown_as_it_is(api: Client, context: ServerContext) -> None:
    await context.store.keep(
        [make_letter(n, now=context.clock.now()) for n in range(3)]  # 3 minutes ago
    )

    answer = await api.get("/metrics")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    shown = values(answer.text)
    assert shown["dlq_messages", "orders,pending"] == 3
    assert shown["pipestream_dlq_depth", "orders"] == 3
    assert shown["dlq_queue_depth", "orders"] == 3
    assert shown["dlq_groups", "new"] == 1
    assert shown["dlq_office_up", ""] == 1
    assert shown["dlq_reconcile_mismatch", ""] == 0
    age = shown["dlq_oldest_unreviewed_age_seconds", "orders"]
    assert 180 <= age < 240


async def test_openmetrics_can_be_had_as_well(api: Client) -> None:
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}

    answer = await api.get("/metrics", headers=accept)

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_the_office_is_not_asked_for_every_scrape(
    api: Client, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.get("/metrics")
    await context.store.keep([make_letter(1)])
    soon = values((await api.get("/metrics")).text)
    monkeypatch.setattr(health, "METRICS_AGE", 0.0)
    later = values((await api.get("/metrics")).text)

    assert ("dlq_messages", "orders,pending") not in soon
    assert later["dlq_messages", "orders,pending"] == 1


async def test_metrics_include_events_of_the_server(context: ServerContext) -> None:
    Metrics(context.metrics)(Stalled(mailbox="", loop="sweep", seconds=400))

    async with AsyncTestClient(build(context), base_url="http://127.0.0.1") as client:
        shown = values((await client.get("/metrics")).text)

    assert shown["dlq_mishaps_total", "stalled"] == 1


async def test_a_place_as_it_is_served_counts_its_own_events(tmp_path: object) -> None:
    settings = Settings(url=f"sqlite:///{tmp_path}/o.db", serve=Serve(access="off"))
    opening = open_context(
        settings, clock=SystemClock(), dice=SystemDice(), observe=lambda event: None
    )
    async with opening as context:
        context.observe(Stalled(mailbox="", loop="sweep", seconds=400))
        async with AsyncTestClient(build(context), base_url="http://127.0.0.1") as client:
            shown = values((await client.get("/metrics")).text)

    assert shown["dlq_mishaps_total", "stalled"] == 1


async def test_strangers_do_not_learn_names_s26(strangers: Client, guarded: ServerContext) -> None:
    await guarded.store.keep([make_letter(1, source="secret-project")])

    answer = await strangers.get("/metrics")

    assert answer.status_code == 401
    assert "secret-project" not in answer.text


async def test_a_token_that_reads_everything_is_enough(
    strangers: Client, guarded: ServerContext
) -> None:
    reader = await token(guarded, Role.READER)
    only_mails = await token(guarded, Role.READER, "mails")

    everything = await strangers.get("/metrics", headers={"authorization": f"Bearer {reader}"})
    some = await strangers.get("/metrics", headers={"authorization": f"Bearer {only_mails}"})

    assert everything.status_code == 200
    assert some.status_code == 403


async def test_metrics_can_be_made_public(guarded: ServerContext) -> None:
    serve = structs.replace(guarded.settings.serve, metrics="open")
    settings = structs.replace(guarded.settings, serve=serve)
    context = structs.replace(guarded, settings=settings)

    async with AsyncTestClient(build(context), base_url="http://127.0.0.1") as client:
        assert (await client.get("/metrics")).status_code == 200
