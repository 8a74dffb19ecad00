"""The stream of changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from deadletter.core.access import Role
from deadletter.core.campaign import Campaign
from deadletter.core.errors import Unavailable
from deadletter.core.letter import AuditEntry
from deadletter.ports import Engine
from deadletter.server.api.events import Counted, Live, last_act
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import eventually
from office.making import BY, make_letter, make_letters
from queue_server.wire.wire_rig import running
from server.api.conftest import Caller


@pytest.fixture
async def live(context: ServerContext) -> AsyncIterator[Live]:
    live = Live(context.store, every=0.01)
    yield live
    await live.close()


async def heard(listener: asyncio.Queue[Any], count: int) -> list[Any]:
    async with asyncio.timeout(10):
        return [await listener.get() for _ in range(count)]


async def test_letters_acts_and_replays_are_told(live: Live, context: ServerContext) -> None:
    letter = make_letter()
    async with live.listening() as listener:
        await context.store.keep([letter])
        (arrived,) = await heard(listener, 1)
        await context.office.letters.note([letter.id], "seen", BY)
        (act,) = await heard(listener, 1)
        await context.office.replays.sender.begin([letter.id], BY, query="*", hold=True)
        planned, replay = await heard(listener, 2)

    assert arrived == Counted("orders", {letter.head.state: 1})
    assert isinstance(act, AuditEntry)
    assert act.detail == "seen"
    assert isinstance(planned, AuditEntry)
    assert isinstance(replay, Campaign)


async def test_earlier_events_are_not_streamed(live: Live, context: ServerContext) -> None:
    old = make_letter()
    await context.store.keep([old])
    await context.office.letters.note([old.id], "old", BY)

    async with live.listening() as listener:
        await context.office.letters.note([old.id], "new", BY)
        (act,) = await heard(listener, 1)

    assert act.detail == "new"


async def test_the_store_is_not_polled_without_listeners(live: Live) -> None:
    assert not live.is_polling
    async with live.listening(), live.listening():
        assert live.is_polling

    await eventually(lambda: not live.is_polling)


async def test_all_listeners_share_one_look(live: Live, context: ServerContext) -> None:
    async with live.listening() as one:
        polling = live._polling
        async with live.listening() as two:
            await context.store.keep([make_letter()])
            assert await heard(one, 1) == await heard(two, 1)
            assert live._polling is polling


async def test_a_listener_that_is_too_slow_is_sent_away(
    live: Live, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.server.api.events._WAITING", 2)
    letters = make_letters(3)
    await context.store.keep(letters)
    async with live.listening() as listener:
        await context.office.letters.note([letter.id for letter in letters], "n", BY)
        (last,) = await heard(listener, 1) if listener.empty() else [None]
        while last is not None:
            (last,) = await heard(listener, 1)

    assert last is None


async def test_a_store_out_of_reach_ends_nothing(
    live: Live, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = make_letter()
    failures = 0
    counts = context.store.counts

    async def gone() -> Any:
        nonlocal failures
        failures += 1
        if failures < 4:
            raise Unavailable("gone")
        return await counts()

    async with live.listening() as listener:
        monkeypatch.setattr(context.store, "counts", gone)
        await context.store.keep([letter])
        await heard(listener, 1)

    assert failures >= 4


@pytest.mark.parametrize("acts", [0, 1, 2, 5, 16, 17])
async def test_the_end_of_the_audit_is_found(context: ServerContext, acts: int) -> None:
    for number in range(acts):
        await context.store.record("test", str(number), BY)

    assert await last_act(context.store) == acts


async def events(url: str, headers: dict[str, str]) -> AsyncIterator[tuple[dict[str, str], Any]]:
    """Yield the events of a stream."""
    async with (
        httpx.AsyncClient(timeout=10) as client,
        client.stream("GET", f"{url}/api/v1/events", headers=headers) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        event: dict[str, str] = {}
        async for line in answer.aiter_lines():
            name, _, text = line.partition(": ")
            if line:
                event[name] = text
            elif event:
                yield event, json.loads(event.get("data", "null"))
                event = {}


async def test_events_are_heard_over_the_wire_and_resumed(context: ServerContext) -> None:
    letter = make_letter()
    await context.store.keep([letter])
    async with running(build(context)) as url:
        hearing = events(url, {})
        await anext(hearing)  # it has begun
        await context.office.letters.note([letter.id], "one", BY)
        event, act = await anext(hearing)
        await hearing.aclose()  # type: ignore[attr-defined]
        await context.office.letters.note([letter.id], "two", BY)
        again = events(url, {"last-event-id": event["id"]})
        await anext(again)
        missed, told = await anext(again)
        context.stopping.set()  # and the stream ends by itself
        rest = [one async for one in again]

    assert (event["event"], act["detail"]) == ("act", "one")
    assert (missed["event"], told["detail"]) == ("act", "two")
    assert rest == []


async def test_listeners_hear_of_their_own_letters_only(
    guarded: ServerContext, caller: Caller, engine: Engine
) -> None:
    anna = await caller(Role.READER, "orders")
    async with running(build(guarded)) as url:
        hearing = events(url, anna)
        await anext(hearing)
        theirs = make_letter(1, source="mails")
        await guarded.store.keep([theirs])
        await guarded.office.letters.note([theirs.id], "secret", BY)
        ours = make_letter(2)
        await guarded.store.keep([ours])
        event, counted = await anext(hearing)
        guarded.stopping.set()
        rest = [one async for one in hearing]

    assert event["event"] == "letters"
    assert counted == {"source": "orders", "counts": {"pending": 1}}
    assert rest == []


async def test_a_listener_that_missed_events_gets_all_of_them(context: ServerContext) -> None:
    letter = make_letter()
    await context.store.keep([letter])
    for _ in range(1_100):
        await context.store.record("seen", letter.id, BY, "")
    last = await last_act(context.store)

    async with running(build(context)) as url:
        hearing = events(url, {"last-event-id": "0"})
        await anext(hearing)
        told = [(await anext(hearing))[0]["id"] for _ in range(last)]
        context.stopping.set()

    assert told == [str(number) for number in range(1, last + 1)]


async def test_listeners_are_sent_away_when_nobody_looks_any_more(
    live: Live, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(**_: Any) -> Any:
        raise ValueError("a mistake of ours")

    async with live.listening() as listener:
        monkeypatch.setattr(context.store, "counts", broken)

        assert await heard(listener, 1) == [None]
