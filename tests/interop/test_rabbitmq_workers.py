"""Real workers on RabbitMQ: pika and Celery, on classic and on quorum queues."""

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from interop.rabbitmq_shop import KINDS
from interop.rig import Shop, System, halt_and_go_on, survive_kills
from servers import Server

QUIET = ("--without-gossip", "--without-mingle", "--loglevel", "WARNING")
WORKERS = {
    "pika": ("pika_shop",),
    "celery": ("celery", "-A", "celery_shop", "worker", "--pool", "solo", *QUIET),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WORKERS)
def system(request: pytest.FixtureRequest, kind: str) -> System:
    name = str(request.param)
    return System(
        framework=name, module=f"{name}_shop", place=f"{name}.{kind}.dead", worker=WORKERS[name]
    )


@pytest.fixture
def shop(rabbitmq_server: Server, system: System, kind: str, tmp_path: Path) -> Iterator[Shop]:
    """An application; its queues are gone afterwards."""
    yield Shop(system.framework, rabbitmq_server, tmp_path, system.module, kind)
    parameters = pika.URLParameters(rabbitmq_server.url)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        for queue in (system.place, system.place.removesuffix(".dead")):
            channel.queue_delete(queue)


async def test_a_canary_that_dies_again_halts_and_later_is_presumed_handled(
    shop: Shop, system: System
) -> None:
    await halt_and_go_on(shop, system, "presumed")

    letters = [shop.dlq("show", one["id"])[0] for one in shop.letters()]
    home = system.place.removesuffix(".dead")
    found = {(one["source"], one["reason"], one["replays"]) for one in letters}
    assert found == {(home, "rejected", 1), (home, "rejected", 2)}
    if system.framework == "celery":
        assert {one["consumer"] for one in letters} == {"shop.charge"}
        args = {one["origin"]["fields"]["args"] for one in letters}
        assert args == {f'["o-{number}"]' for number in range(6)}


@pytest.mark.parametrize("system", ["celery"], indirect=True)
async def test_tasks_survive_kills_on_both_ways(shop: Shop, system: System) -> None:
    await survive_kills(shop, system)
