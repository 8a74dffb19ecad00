"""Frameworks on Redis: the way back to them."""

import json
from typing import Any

import pytest
from msgspec import structs

from deadletter.brokers.redis.drain import Frameworks
from deadletter.core.campaign import Verdict
from deadletter.core.message import Lineage
from deadletter.office.replay import Replay
from deadletter.ports import CopyState, SentCopy
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice
from deadletter.wiring.foreign import WayBack
from intake.redis_rig import client, frameworks, restore, without_lineage
from intake.rig import drained, letters, sent_back, store
from servers import Server

__all__ = ["client", "frameworks"]


class TestOnTheWayBack:
    """What all of them have in common when their letters are sent back."""

    @pytest.mark.parametrize(
        ("name", "place", "queue"),
        [
            ("rq", "rq:pictures", "rq:queue:pictures"),
            ("dramatiq_redis", "dramatiq:default", "dramatiq:default"),
            ("celery_redis", "celery:celery", "celery"),
        ],
    )
    async def test_a_copy_that_a_worker_has_taken_is_not_sent_again(
        self,
        frameworks: Frameworks,
        client: Any,
        office: MemoryEngine,
        *,
        name: str,
        place: str,
        queue: str,
    ) -> None:
        await restore(client, name)
        await drained(frameworks.drain(place), office)
        [letter] = await letters(office)
        lineage = Lineage(letter_id=letter.id, generation=1, campaign="c-1")
        copy = structs.replace(letter.message, lineage=lineage)
        sink = frameworks.sink(place.partition(":")[2])

        await sink.send([copy])
        taken = await client.lpop(queue)
        await sink.send([copy])

        assert taken
        assert await client.llen(queue) == 0

    @pytest.mark.parametrize(
        ("name", "place"),
        [("rq", "rq:pictures"), ("dramatiq_redis", "dramatiq:default"), ("bullmq", "bullmq:mail")],
    )
    @pytest.mark.parametrize("is_named_by_place", [False, True])
    async def test_a_copy_that_waits_is_known_to_be_there(
        self,
        frameworks: Frameworks,
        client: Any,
        office: MemoryEngine,
        *,
        name: str,
        place: str,
        is_named_by_place: bool,
    ) -> None:
        await restore(client, name)
        await drained(frameworks.drain(place), office)
        letter, *_ = await letters(office)
        lineage = Lineage(letter_id=letter.id, generation=1, campaign="c-1")
        copy = SentCopy(
            letter_id=letter.id,
            generation=1,
            mailbox=place if is_named_by_place else place.partition(":")[2],
            message=structs.replace(letter.message, lineage=lineage),
            sent_at=letter.head.dead_at,
        )

        before = await frameworks.look([copy])
        await frameworks.sink(copy.mailbox).send([copy.message])
        waiting = await frameworks.look([copy])

        assert before != [CopyState.THERE]
        assert waiting == [CopyState.THERE]

    async def test_tasks_name_the_queue_that_they_go_to(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        await restore(client, "celery_redis")
        [envelope] = await client.lrange("celery", 0, -1)
        dead = envelope.replace(b'"routing_key": "celery"', b'"routing_key": "dead"')
        await client.lpush("dead", dead.replace(b'"retries": 0', b'"retries": 3'))
        await drained(frameworks.drain("celery:dead"), office)

        await sent_back(frameworks, redis_server.url, office, to="orders")

        [sent] = await client.lrange("orders", 0, -1)
        told = json.loads(sent)
        info = told["properties"]["delivery_info"]
        assert info == {"exchange": "", "routing_key": "orders"}
        assert told["headers"]["retries"] == 0

    async def test_a_task_never_goes_back_into_its_dead_queue_unasked(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        await client.lpush("dead", b"{}")
        await drained(frameworks.drain("celery:dead"), office)

        [why] = await sent_back(frameworks, redis_server.url, office)

        assert "--to" in why
        assert await client.llen("dead") == 0

    async def test_tasks_of_one_list_go_back_oldest_first(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        bodies = [b"%d" % number for number in range(50)]
        for body in bodies:
            await client.lpush("dead", body)
        await drained(frameworks.drain("celery:dead"), office)

        await sent_back(frameworks, redis_server.url, office, to="dead")

        assert (await client.lrange("dead", 0, -1))[::-1] == bodies

    async def test_an_expiry_that_is_over_is_a_verdict_and_stays_behind(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        await restore(client, "celery_redis")
        [envelope] = await client.lrange("celery", 0, -1)
        past = envelope.replace(b'"expires": null', b'"expires": "2020-01-01T00:00:00+00:00"')
        await client.lset("celery", 0, past)
        await drained(frameworks.drain("celery:celery"), office)
        back = WayBack(frameworks, redis_server.url)
        replay = Replay(store(office), back, SystemClock(), SeededDice())

        plan = await replay.plan("is:pending", to="celery")
        await sent_back(frameworks, redis_server.url, office, to="celery")

        assert plan.verdicts == {Verdict.EXPIRED: 1}
        [sent] = await client.lrange("celery", 0, -1)
        assert without_lineage(sent) == envelope
