"""SQS with boto3 as the client of others: drained, sent back, dying again, killed."""

import asyncio
import json
from functools import cache, partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.conftest import Command, dlq
from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.letter import State
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice
from deadletter.wiring.foreign import opened_foreign
from intake.conftest import office
from intake.rig import letters
from interop.clouds import (
    BY,
    ONCE_EACH,
    POINTS,
    Foe,
    all_at_once,
    counts_by_command,
    drain_by_command,
    eventually_done,
    replay_by_command,
    sent_back,
    taken_in,
    working,
)
from servers import Server

__all__ = ["dlq", "office"]

_numbers = count(1)
COUNT = 12  # messages in a place whose drain is killed
XRAY = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


@cache
def client_of(url: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


class Shop:
    """A queue and its dead queue, as the people who own them use them."""

    def __init__(self, server: Server, *, fifo: bool = False) -> None:
        place = server.url.removeprefix("http://")
        self.address = f"sqs+http://test:test@{place}?region=eu-west-1"
        self.client = client_of(server.url)
        end = ".fifo" if fifo else ""
        self.is_fifo = fifo
        self.name = f"shop{next(_numbers)}{end}"
        self.dead = f"{self.name.removesuffix(end)}-dlq{end}"
        kind = {"FifoQueue": "true"} if fifo else {}
        dead = self.client.create_queue(QueueName=self.dead, Attributes=kind)
        arn = self._attributes(dead["QueueUrl"])["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "2"})
        made = self.client.create_queue(
            QueueName=self.name, Attributes={**kind, "RedrivePolicy": policy}
        )
        self.url, self.dead_url = made["QueueUrl"], dead["QueueUrl"]

    def send(self, body: str, **more: Any) -> None:
        if self.is_fifo:
            more = {"MessageGroupId": "g", "MessageDeduplicationId": f"d{next(_numbers)}", **more}
        self.client.send_message(QueueUrl=self.url, MessageBody=body, **more)

    def receive(self, *, hide: int = 0, url: str = "") -> list[dict[str, Any]]:
        answer = self.client.receive_message(
            QueueUrl=url or self.url,
            MaxNumberOfMessages=10,
            VisibilityTimeout=hide,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def take_all(self) -> list[dict[str, Any]]:
        """Everything in the queue, in the order it comes, deleted."""
        found: list[dict[str, Any]] = []
        while some := self.receive(hide=30):
            for one in some:
                self.client.delete_message(QueueUrl=self.url, ReceiptHandle=one["ReceiptHandle"])
            found += some
        return found

    def work(self, stop: Event, *, poison: str = "") -> None:
        """Handle messages until told to stop, and never delete one of them."""
        while not stop.wait(0.05):
            for one in self.receive():
                if one["Body"] != poison:
                    self.client.delete_message(
                        QueueUrl=self.url, ReceiptHandle=one["ReceiptHandle"]
                    )

    def die(self, messages: int = 1) -> None:
        """Receive without deleting, until all of them are in the dead queue."""
        for _ in range(200):
            if self._count(self.dead_url) >= messages:
                return
            self.receive()
        raise AssertionError("SQS did not move them")

    def pending(self) -> int:
        """How many are in the dead queue, seen or not."""
        told = self._attributes(self.dead_url)
        hidden = "ApproximateNumberOfMessagesNotVisible"
        return int(told["ApproximateNumberOfMessages"]) + int(told[hidden])

    def _count(self, url: str) -> int:
        return int(self._attributes(url)["ApproximateNumberOfMessages"])

    def _attributes(self, url: str) -> dict[str, str]:
        answer = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        found: dict[str, str] = answer["Attributes"]
        return found


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def attributes_of(number: int) -> dict[str, Any]:
    return {f"a{n}": text(str(n)) for n in range(number)}


def of_producer(message: dict[str, Any]) -> dict[str, Any]:
    """The attributes that the producer gave it."""
    given = message.get("MessageAttributes", {})
    return {name: one for name, one in given.items() if name != "dlq-replay"}


def entries_of(sqs: Any) -> list[dict[str, Any]]:
    """What SQS is told to send from now on, each with the size of its batch."""
    sent: list[dict[str, Any]] = []
    call = sqs.call

    async def noted(verb: str, **arguments: Any) -> Any:
        entries = arguments.get("Entries", [])
        if verb == "send_message_batch":
            sent.extend({**one, "batch": len(entries)} for one in entries)
        return await call(verb, **arguments)

    sqs.call = noted
    return sent


# What XML, and so SQS, can carry.
TEXT = st.text(
    st.characters(min_codepoint=32, max_codepoint=0xFFFD, exclude_categories=["Cs"]),
    min_size=1,
    max_size=40,
)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,20}", fullmatch=True).filter(
    lambda name: not name.lower().startswith(("aws", "amazon", "dlq"))
)
VALUES = st.one_of(
    st.builds(
        lambda kind, value: {"DataType": kind, "StringValue": value},
        st.sampled_from(["String", "String.json"]),
        TEXT,
    ),
    st.builds(
        lambda kind, value: {"DataType": kind, "StringValue": str(value)},
        st.sampled_from(["Number", "Number.int"]),
        st.one_of(st.integers(-(10**37), 10**37), st.decimals(-1000, 1000, places=5)),
    ),
    st.builds(
        lambda kind, value: {"DataType": kind, "BinaryValue": value},
        st.sampled_from(["Binary", "Binary.png"]),
        st.binary(min_size=1, max_size=40),
    ),
)


MESSAGES = st.tuples(TEXT, st.dictionaries(NAMES, VALUES, max_size=9))


@ONCE_EACH
@given(messages=st.lists(MESSAGES, min_size=4, max_size=10))
async def test_every_message_goes_back_as_its_producer_sent_it(
    sqs_server: Server, messages: list[tuple[str, dict[str, Any]]]
) -> None:
    shop = Shop(sqs_server)
    office = MemoryEngine(clock=SystemClock(), dice=SeededDice())
    trace = {"AWSTraceHeader": text(XRAY)}
    for body, attributes in messages:
        shop.send(body, MessageAttributes=attributes, MessageSystemAttributes=trace)
    count = len(messages)
    async with opened_foreign(shop.address) as sqs:
        sent = entries_of(sqs)
        for _ in range(2):  # the second time it dies as a copy
            shop.die(count)
            await taken_in(sqs.drain(shop.dead), office, count)
            await sent_back(sqs, shop.address, office)

    back = [(one["Body"], of_producer(one)) for one in shop.take_all()]
    assert sorted(back, key=repr) == sorted(messages, key=repr)
    # The emulator forgets it in batches, so this is what it was told.
    assert [one["MessageSystemAttributes"] for one in sent] == [trace] * 2 * count
    assert len(await letters(office)) == count


@pytest.mark.parametrize("fifo", [False, True])
async def test_copies_with_many_attributes_return_to_their_letters(
    sqs_server: Server, office: MemoryEngine, fifo: bool
) -> None:
    shop = Shop(sqs_server, fifo=fifo)
    numbers = range(6, 11)
    for number in numbers:
        shop.send(str(number), MessageAttributes=attributes_of(number))
    shop.die(len(numbers))
    async with opened_foreign(shop.address) as sqs:
        await taken_in(sqs.drain(shop.dead), office, len(numbers))
        campaign = await sent_back(sqs, shop.address, office)
        # Where ten attributes leave no room, a queue that knows ids has some.
        gone = 5 if fifo else 4
        assert campaign.counts.get(Outcome.SENT) == gone
        assert campaign.counts.get(Outcome.REFUSED, 0) == 5 - gone
        for copy in shop.receive():
            assert of_producer(copy) == attributes_of(int(copy["Body"]))
            assert len(copy["MessageAttributes"]) <= 10
        shop.die(gone)
        again = await taken_in(sqs.drain(shop.dead), office, gone)

    assert len(await letters(office)) == len(numbers)
    assert {one.head.state for one in again} == {State.PENDING}
    assert {one.head.replays for one in again} == {1}


async def test_a_copy_without_room_for_its_mark_goes_if_that_was_asked_for(
    sqs_server: Server, office: MemoryEngine
) -> None:
    shop = Shop(sqs_server)
    shop.send("many", MessageAttributes=attributes_of(10))
    shop.die()
    async with opened_foreign(f"{shop.address}&unmarked=yes") as sqs:
        await taken_in(sqs.drain(shop.dead), office, 1)
        await sent_back(sqs, shop.address, office)

    [copy] = shop.take_all()
    assert copy["MessageAttributes"] == attributes_of(10)


async def test_a_group_goes_back_oldest_first_and_under_ids_of_its_own(
    sqs_server: Server, office: MemoryEngine
) -> None:
    shop = Shop(sqs_server, fifo=True)
    for number in range(25):
        shop.send(str(number), MessageGroupId=f"g{number % 2}")
    shop.die(25)
    async with opened_foreign(shop.address) as sqs:
        await taken_in(sqs.drain(shop.dead), office, 25)
        await sent_back(sqs, shop.address, office)

    found = shop.take_all()
    for group in ("g0", "g1"):
        bodies = [int(one["Body"]) for one in found if one["Attributes"]["MessageGroupId"] == group]
        assert bodies == sorted(bodies)
    assert sorted(int(one["Body"]) for one in found) == list(range(25))


async def test_large_messages_go_back_in_calls_that_sqs_takes(
    sqs_server: Server, office: MemoryEngine
) -> None:
    shop = Shop(sqs_server)
    for letter in "abcde":
        shop.send(letter * 100_000)
    shop.die(5)
    async with opened_foreign(shop.address) as sqs:
        await taken_in(sqs.drain(shop.dead), office, 5)
        sent = entries_of(sqs)
        await sent_back(sqs, shop.address, office)

    assert len(shop.take_all()) == 5
    assert {one["batch"] for one in sent} == {2, 1}  # of 100 kB each


def test_a_canary_is_presumed_handled_and_what_dies_again_has_failed(
    sqs_server: Server, dlq: Command
) -> None:
    shop = Shop(sqs_server)
    for number in range(5):
        shop.send(str(number))
    shop.die(5)
    drain_by_command(dlq, shop.address, shop.dead, 5)
    how = ("--presume", "1s", "--wait", "60")
    with working(partial(shop.work, poison="4")):
        first = replay_by_command(dlq, shop.address, "--canary", "2", *how)
        drain_by_command(dlq, shop.address, shop.dead, 1)
    with working(shop.work):
        second = replay_by_command(dlq, shop.address, *how)

    assert first["counts"] == {"presumed": 5}  # SQS tells nobody
    assert counts_by_command(dlq, first["id"]) == {"presumed": 4, "failed": 1}
    assert (second["state"], second["counts"]) == ("done", {"presumed": 1})
    assert shop.take_all() == []


@pytest.mark.parametrize("fifo", [False, True])
def test_the_command_says_which_copies_may_arrive_twice(
    sqs_server: Server, dlq: Command, fifo: bool
) -> None:
    shop = Shop(sqs_server, fifo=fifo)
    for number in range(3):
        shop.send(str(number))
    shop.die(3)
    drain_by_command(dlq, shop.address, shop.dead, 3)
    through = ("--through", shop.address)
    planned = dlq("--json", "replay", "start", "is:pending", *through).document["id"]

    async def begun(engine: Any) -> None:
        await engine.letters.set_campaign(planned, CampaignState.RUNNING, BY)
        await engine.letters.take_replay(planned, limit=2)

    dlq.do(begun)  # and then it is killed
    ran = dlq("replay", "resume", planned, "--take-over", *through)
    status = dlq("replay", "status", planned)

    assert ran.code == 0
    for said in (ran, status):
        assert ("2 letters are sent again" in said.err) is not fifo
        assert ("may arrive twice" in said.err) is not fifo
    assert len(shop.take_all()) == 3


def test_messages_held_by_an_interrupted_drain_are_reported(
    sqs_server: Server, dlq: Command
) -> None:
    shop = Shop(sqs_server)
    for number in range(3):
        shop.send(str(number))
    shop.die(3)
    assert len(shop.receive(hide=300, url=shop.dead_url)) == 3

    ran = dlq("drain", shop.address, shop.dead)

    assert ran.code == 0
    assert "3 messages in flight" in ran.out
    assert "within 5 min" in ran.out
    assert dlq("--json", "drain", shop.address, shop.dead).document["in_flight"] == 3


def test_a_misspelt_queue_is_an_error_with_the_near_names(sqs_server: Server, dlq: Command) -> None:
    shop = Shop(sqs_server)

    ran = dlq("drain", shop.address, shop.dead.replace("dlq", "dql"))

    assert ran.code != 0
    assert f"Did you mean '{shop.dead}'" in ran.err


@pytest.mark.parametrize("fifo", [False, True])
def test_nothing_is_lost_or_changed_when_both_ways_are_killed(
    sqs_server: Server, tmp_path: Path, fifo: bool
) -> None:
    points = range(1, POINTS + 1, 3 if fifo else 1)
    shops = [(number, Shop(sqs_server, fifo=fifo)) for number in points]

    def survive(job: tuple[int, Shop]) -> None:
        point, shop = job
        attributes = {"n": {"DataType": "Number.int", "StringValue": "42"}}
        for number in range(COUNT):
            shop.send(f"{shop.name}/{number}", MessageAttributes=attributes)
        shop.die(COUNT)
        foe = Foe(shop.address, shop.dead, tmp_path, source=shop.name, _HIDDEN=1)
        assert not foe.drain(point)
        while shop.pending():
            foe.drain()
        assert not foe.replay(point)
        eventually_done(foe.replay)
        back = shop.take_all()
        wanted = {f"{shop.name}/{number}" for number in range(COUNT)}
        assert {one["Body"] for one in back} == wanted
        assert all(of_producer(one) == attributes for one in back)
        # A standard queue does not know a copy that is sent twice: the batch under way.
        doubles = len(back) - COUNT
        assert 0 <= doubles <= (0 if fifo else 3)
        assert doubles <= len(asyncio.run(foe.in_doubt())) <= (0 if fifo else 3)
        marks = [one["MessageAttributes"]["dlq-replay"] for one in back]
        assert len({mark["StringValue"] for mark in marks}) == COUNT

    all_at_once(survive, shops)
