"""Frameworks on Redis: what really they wrote, taken in and given back."""

import json
from base64 import b64decode, b64encode
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from deadletter.brokers.redis.drain import Frameworks
from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.failure import Reason, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice
from deadletter.wiring.foreign import opened_foreign
from intake.redis_rig import LINEAGE, LINEAGE_TEXTS, client, frameworks, restore, without_lineage
from intake.rig import drained, intake, letters, sent_back
from servers import Server

__all__ = ["client", "frameworks"]


class TestRQ:
    async def letter(self, client: Any, frameworks: Frameworks, office: MemoryEngine) -> DeadLetter:
        await restore(client, "rq")
        [letter] = await drained(frameworks.drain("rq:pictures"), office)
        return letter

    async def test_a_failed_job_becomes_a_letter(
        self, client: Any, frameworks: Frameworks, office: MemoryEngine
    ) -> None:
        letter = await self.letter(client, frameworks, office)

        head = letter.head
        assert (head.source, head.message_id) == ("pictures", "thumb-1")
        assert (head.error_type, head.error_text) == ("OSError", "cannot read cat.png")
        assert head.reason is Reason.FATAL_ERROR
        assert "tasks_rq.py" in letter.story()[-1].stack
        assert f"{letter.story()[-1].at:%Y-%m-%dT%H:%M:%S}" == "2026-11-16T05:52:55"
        assert await client.zcard("rq:failed:pictures") == 0
        # Its hash had no expiry, as with failure_ttl=-1: nothing else would remove it.
        assert 0 < await client.ttl("rq:job:thumb-1") <= 365 * 86_400

    async def test_job_data_is_kept_byte_for_byte(
        self, client: Any, frameworks: Frameworks, office: MemoryEngine
    ) -> None:
        letter = await self.letter(client, frameworks, office)

        assert letter.message.body == await client.hget("rq:job:thumb-1", "data")

    async def test_a_job_is_queued_again_as_it_was(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        letter = await self.letter(client, frameworks, office)
        before = await client.hgetall("rq:job:thumb-1")
        await client.delete("rq:job:thumb-1")  # RQ forgets jobs after a year

        await sent_back(frameworks, redis_server.url, office)

        after = await client.hgetall("rq:job:thumb-1")
        assert await client.lrange("rq:queue:pictures", 0, -1) == [b"thumb-1"]
        assert after == before | {
            b"status": b"queued",
            b"started_at": b"",
            b"ended_at": b"",
            **{name: after[name] for name in LINEAGE},
        }
        assert after[b"data"] == letter.message.body


class TestBullMQ:
    async def letters(
        self, client: Any, frameworks: Frameworks, office: MemoryEngine
    ) -> dict[str, DeadLetter]:
        await restore(client, "bullmq")
        found = await drained(frameworks.drain("bullmq:mail"), office)
        return {letter.head.message_id: letter for letter in found}

    async def test_failed_jobs_become_letters(
        self, client: Any, frameworks: Frameworks, office: MemoryEngine
    ) -> None:
        found = await self.letters(client, frameworks, office)

        head = found["w1"].head
        assert found["w1"].message.body == b'{"to":"ann@example.org"}'
        assert (head.source, head.consumer, head.attempts) == ("mail", "welcome", 2)
        assert (head.error_type, head.error_text) == ("Error", "smtp timeout for w1")
        assert head.trouble is Trouble.TRANSIENT
        assert "bull.js" in found["w1"].story()[-1].stack
        assert not await client.exists("bull:mail:failed", "bull:mail:w1")

    async def test_jobs_wait_again_with_their_attempts_to_be_made_anew(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        await self.letters(client, frameworks, office)

        await sent_back(frameworks, redis_server.url, office)

        job = await client.hgetall("bull:mail:w1")
        assert b"llvfbsy3q4hfyr5jliclbktc" in job.pop(b"dlq:lineage")
        assert await client.lrange("bull:mail:wait", 0, -1) == [b"w1"]
        assert job == {
            b"data": b'{"to":"ann@example.org"}',
            b"opts": job[b"opts"],
            b"timestamp": job[b"timestamp"],
            b"name": b"welcome",
            b"delay": b"0",
            b"priority": b"0",
        }
        assert await client.zrange("bull:mail:prioritized", 0, -1, withscores=True) == [
            (b"i7", 3 * 2**32 + 1)
        ]
        assert await client.zrange("bull:mail:marker", 0, -1) == [b"0"]

    async def test_a_paused_queue_of_an_older_version_has_a_list_of_its_own(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        await self.letters(client, frameworks, office)
        meta = {"version": "bullmq:5.1.0", "paused": "1"}
        await client.hset("bull:mail:meta", mapping=meta)

        await sent_back(frameworks, redis_server.url, office)

        assert await client.lrange("bull:mail:paused", 0, -1) == [b"w1"]
        assert not await client.exists("bull:mail:marker")

    async def test_jobs_with_any_bytes_go_back_unchanged(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        rng = Random(14)
        jobs = {}
        for number in range(60):
            id_ = b"%d-" % number + rng.randbytes(rng.randrange(8))
            jobs[id_] = {
                b"data": rng.choice([b'{"a":1.0}', b"null", rng.randbytes(40), b"\xff"]),
                b"name": rng.randbytes(5),
                b"opts": rng.choice([b"{}", b'{"lifo":true}', rng.randbytes(9), b"[1]"]),
                b"timestamp": b"1794971188907",
                b"odd \x00 field": rng.randbytes(3),
            }
            await client.hset(b"bull:odd:" + id_, mapping=jobs[id_])
            await client.zadd("bull:odd:failed", {id_: number})

        await drained(frameworks.drain("bullmq:odd"), office)
        gone = await client.keys("bull:odd:*")
        await sent_back(frameworks, redis_server.url, office)

        assert gone == []
        for id_, fields in jobs.items():
            back = await client.hgetall(b"bull:odd:" + id_)
            assert back.pop(b"dlq:lineage")
            assert back == fields
        assert len(await client.lrange("bull:odd:wait", 0, -1)) == len(jobs)


class TestDramatiq:
    async def test_a_dead_message_becomes_a_letter_and_goes_back_byte_for_byte(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        await restore(client, "dramatiq_redis")
        [(name, body)] = (await client.hgetall("dramatiq:default.XQ.msgs")).items()

        [letter] = await drained(frameworks.drain("dramatiq:default"), office)
        gone = not await client.exists("dramatiq:default.XQ", "dramatiq:default.XQ.msgs")
        await sent_back(frameworks, redis_server.url, office)

        assert gone
        assert (letter.head.source, letter.head.attempts) == ("default", 2)
        assert letter.head.error_text == "order o-1 has no price"
        assert await client.lrange("dramatiq:default", 0, -1) == [name]
        sent = await client.hget("dramatiq:default.msgs", name)
        old, new = msgspec.json.decode(body), msgspec.json.decode(sent)
        assert new.pop("options").keys() == {"redis_message_id", *LINEAGE_TEXTS}
        assert new == {key: old[key] for key in new}
        assert letter.message.body == body[: body.index(b'{"redis_')] + (
            b"{}" + body[body.index(b',"message_id"') :]
        )


class TestCelery:
    async def test_a_task_becomes_a_letter_and_goes_back_byte_for_byte(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        await restore(client, "celery_redis")
        [envelope] = await client.lrange("celery", 0, -1)

        [letter] = await drained(frameworks.drain("celery:celery"), office)
        gone = not await client.exists("celery")
        await sent_back(frameworks, redis_server.url, office, to="celery")

        assert gone
        assert letter.head.consumer == "shop.send_mail"
        assert letter.head.message_id == "11111111-aaaa-4bbb-8ccc-222222222222"
        assert msgspec.json.decode(letter.message.body)[0] == ["ann@example.org"]
        [sent] = await client.lrange("celery", 0, -1)
        assert without_lineage(sent) == envelope

    async def test_queue_names_inside_a_task_are_not_followed(
        self, client: Any, frameworks: Frameworks, office: MemoryEngine
    ) -> None:
        await restore(client, "celery_redis")
        [envelope] = await client.lrange("celery", 0, -1)
        lie = envelope.replace(b'"routing_key": "celery"', b'"routing_key": "secrets"')
        await client.lpush("dead", lie)

        [letter] = await drained(frameworks.drain("celery:dead"), office)

        assert letter.head.source == "celery:dead"

    async def test_tasks_of_every_priority_are_found(
        self, client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine
    ) -> None:
        await restore(client, "celery_redis")
        [envelope] = await client.lrange("celery", 0, -1)
        await client.rename("celery", "celery\x06\x163")

        await drained(frameworks.drain("celery:celery"), office)
        await sent_back(frameworks, redis_server.url, office, to="celery")

        [sent] = await client.lrange("celery\x06\x163", 0, -1)
        assert without_lineage(sent) == envelope


@pytest.mark.parametrize(
    "rubbish",
    [
        *(b"", b"\xff\x00", b"[]", b'{"body": 3}'),
        b'{"body": "", "properties": {"body_encoding": "base64"}}',
        b'{"body": "YWI\\u003d", "properties": {"body_encoding": "base64"}}',
    ],
)
async def test_entries_that_are_not_tasks_are_kept_as_malformed_and_can_go_back(
    client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine, rubbish: bytes
) -> None:
    await client.lpush("dead", rubbish)

    [letter] = await drained(frameworks.drain("celery:dead"), office)
    await sent_back(frameworks, redis_server.url, office, to="dead")

    assert letter.head.reason is Reason.UNDECODABLE
    assert letter.head.trouble is Trouble.MALFORMED
    assert letter.message.body == rubbish
    assert await client.lrange("dead", 0, -1) == [rubbish]


@pytest.mark.parametrize(
    ("key", "place"),
    [("rq:failed:q", "rq:q"), ("bull:q:failed", "bullmq:q"), ("dramatiq:q.XQ", "dramatiq:q")],
)
async def test_a_job_whose_contents_are_gone_is_kept_all_the_same(
    client: Any, frameworks: Frameworks, office: MemoryEngine, key: str, place: str
) -> None:
    await client.zadd(key, {b"\xffghost": 5})

    [letter] = await drained(frameworks.drain(place), office)

    assert letter.head.reason is Reason.UNDECODABLE
    assert await client.zcard(key) == 0


@pytest.mark.parametrize(
    "place", ["celery:celery", "dramatiq:default", "rq:pictures", "bullmq:mail"]
)
async def test_keys_of_ours_are_gone_after_a_week(
    client: Any, frameworks: Frameworks, redis_server: Server, office: MemoryEngine, place: str
) -> None:
    kind = place.partition(":")[0]
    await restore(client, f"{kind}_redis" if kind in {"celery", "dramatiq"} else kind)
    before = {key async for key in client.scan_iter()}

    await drained(frameworks.drain(place), office)
    to = "celery" if kind == "celery" else None
    await sent_back(frameworks, redis_server.url, office, to=to)

    [ours] = [key async for key in client.scan_iter("*dlq*") if key not in before]
    assert 604_000 < await client.ttl(ours) <= 604_800


async def test_places_are_found_by_their_keys(client: Any, frameworks: Frameworks) -> None:
    for name in ("rq", "bullmq", "dramatiq_redis", "celery_redis"):
        await restore(client, name)

    found = await frameworks.places()

    assert found == ["bullmq:mail", "dramatiq:default", "rq:pictures"]


async def test_taken_twice_is_one_letter(
    client: Any, frameworks: Frameworks, office: MemoryEngine
) -> None:
    await restore(client, "bullmq")
    killed = frameworks.drain("bullmq:mail")
    await intake(killed, office).look(10)
    killed.forget = killed.close  # type: ignore[assignment]
    with pytest.raises(TypeError):
        await intake(killed, office).once(10)
    held = await letters(office)

    again = await drained(frameworks.drain("bullmq:mail"), office)

    assert {letter.id for letter in again} == {letter.id for letter in held}
    assert [one.head.revision for one in await letters(office)] == [0, 0]


async def test_wrong_names_and_addresses_say_what_to_do(
    client: Any, frameworks: Frameworks, redis_server: Server
) -> None:
    await client.set("celery", "text")
    with pytest.raises(ConfigError, match="not a queue of that framework"):
        await frameworks.drain("celery:celery").take(1)
    with pytest.raises(ConfigError, match="rq:QUEUE"):
        frameworks.drain("orders")
    with pytest.raises(ConfigError, match="password"):
        async with opened_foreign(redis_server.url.replace("postmark", "wrong")):
            pass
    with pytest.raises(Unavailable, match="is Redis running"):
        async with opened_foreign("redis://127.0.0.1:1"):
            pass


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=25, deadline=None)
@given(args=st.lists(JSON, max_size=3), style=st.booleans(), body=st.binary(min_size=1))
async def test_bodies_make_the_round_trip_byte_for_byte(
    redis_server: Server, args: list[Any], style: bool, body: bytes
) -> None:
    """For each framework, and whatever its body is."""
    client = Redis.from_url(redis_server.url)
    await client.flushdb()
    office = MemoryEngine(clock=SystemClock(), dice=SeededDice())
    envelope = {
        "body": b64encode(body).decode(),
        "headers": {"id": "t", "task": "t", "root_id": "t", "custom": args},
        "properties": {"body_encoding": "base64", "delivery_info": {}},
    }
    told = {
        "queue_name": "q",
        "actor_name": "a",
        "args": args,
        "kwargs": {},
        "options": {"mine": args},
        "message_id": "m",
        "message_timestamp": 1,
    }
    await client.lpush("dead", json.dumps(envelope, ensure_ascii=style))
    await client.zadd("dramatiq:q.XQ", {"r": 1})
    compact = json.dumps(told, separators=(",", ":"))
    runs = {"mine": args, "redis_message_id": "r", "retries": 3}
    dead = json.dumps({**told, "options": runs}, separators=(",", ":"))
    await client.hset("dramatiq:q.XQ.msgs", "r", dead)
    await client.zadd("rq:failed:q", {"j": 1})
    await client.hset("rq:job:j", mapping={"data": body, "status": "failed"})
    async with opened_foreign(redis_server.url) as frameworks:
        for place in ("celery:dead", "dramatiq:q", "rq:q"):
            await drained(frameworks.drain(place), office)
        kept = {one.head.message_id: one.message.body for one in await letters(office)}
        await sent_back(frameworks, redis_server.url, office, to="home")

    assert kept == {"t": body, "m": compact.encode(), "j": body}
    [sent] = await client.lrange("home", 0, -1)
    after = json.loads(sent)
    assert b64decode(after["body"]) == body
    assert json.dumps(after["headers"]["custom"]) == json.dumps(args)
    assert await client.hget("rq:job:j", "data") == body
    copy = json.loads(await client.hget("dramatiq:home.msgs", "r"))
    assert copy["queue_name"] == "home"
    copy |= {"queue_name": "q", "options": {"mine": copy["options"]["mine"]}}
    assert json.dumps(copy, separators=(",", ":")) == compact
    await client.aclose()
