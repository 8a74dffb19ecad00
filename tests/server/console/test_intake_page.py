"""The screen of intakes, and its routes, with a real RabbitMQ."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from litestar.testing import AsyncTestClient

from deadletter.core.access import Role
from deadletter.core.errors import ConfigError
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.settings import IntakePlace, Settings, SourceServer
from deadletter.testing.fakes import eventually
from server.conftest import token
from server.console.conftest import Browser
from server.console.intake_rig import NOWHERE, DeadQueue, a_dead_queue, settings_of, with_intakes
from servers import Server


@pytest.fixture
async def dead(rabbitmq_server: Server) -> AsyncIterator[DeadQueue]:
    async with a_dead_queue(rabbitmq_server.url) as queue:
        yield queue


@pytest.fixture
async def intake(context: ServerContext, dead: DeadQueue) -> AsyncIterator[Browser]:
    """A browser of a server with one intake."""
    made = with_intakes(context, settings_of(dead.url, dead.name))
    async with AsyncTestClient(build(made), base_url="http://127.0.0.1") as client:
        client.follow_redirects = True
        yield Browser(client)


async def state(browser: Browser) -> dict[str, object]:
    (found,) = (await browser.client.get("/api/v1/intakes")).json()
    return dict(found)


async def test_without_intakes_it_says_how_to_set_one_up(browser: Browser) -> None:
    page = await browser.get("/intake")

    assert page.h1 == "No intake is set up"
    assert "[[intake]]" in page.main.text
    await browser.get("/intake/nowhere/dialog?act=take", status=404)


async def test_a_look_shows_letters_and_takes_nothing(intake: Browser, dead: DeadQueue) -> None:
    await dead.put(b"1", b"2", b"<script>alert(1)</script>")

    form = (await intake.get("/intake")).form(button="Look")
    page = await intake.submit(form)
    part = await intake.submit(form, hx=True)

    assert "The first 3 messages, as letters. All of them stay there." in page.main.text
    assert "m-1" in page.main.text
    assert not page.main.all("script")
    assert "m-2" in part.text
    await eventually(lambda: _is(dead, 3))


async def _is(dead: DeadQueue, depth: int) -> bool:
    return await dead.depth() == depth


async def test_some_and_then_all_are_taken(
    intake: Browser, dead: DeadQueue, context: ServerContext
) -> None:
    await dead.put(*(b"%d" % n for n in range(25)))
    form = (await intake.get("/intake/orders-dead/dialog?act=take")).form(
        action="/intake/orders-dead/take"
    )

    said = await intake.submit(form, limit="10", reason="a first look")
    assert f"10 letters taken in from {dead.name}." in said.text
    assert (await state(intake))["taken"] == 10

    said = await intake.submit(form, limit="all")
    assert "15 letters taken in" in said.text
    assert await dead.depth() == 0
    said = await intake.submit(form, limit="all")
    assert f"Nothing was taken: {dead.name} is empty." in said.text
    await intake.submit(form, limit="none", status=400)

    assert len((await context.store.find(limit=100)).heads) == 25
    acts = await context.store.audit(target=dead.name)
    assert [(e.action, e.detail, e.reason) for e in acts] == [
        ("drain", "10 letters", "a first look"),
        ("drain", "15 letters", ""),
    ]


async def test_a_place_is_followed_and_stopped(
    intake: Browser, dead: DeadQueue, context: ServerContext
) -> None:
    form = (await intake.get("/intake/orders-dead/dialog?act=follow")).form(
        action="/intake/orders-dead/follow"
    )
    said = await intake.submit(form, reason="until the fix is out")
    assert "orders-dead is followed" in said.text
    assert (await state(intake))["state"] == "following"

    await dead.put(b"1", b"2")
    await eventually(lambda: _has_taken(intake, 2), within=20.0)
    page = await intake.get("/intake")
    assert page.h1 == "1 intake, 1 followed"
    assert "following" in page.main.text
    await intake.submit(form, status=409)  # once is enough

    form = (await intake.get("/intake/orders-dead/dialog?act=stop")).form(
        action="/intake/orders-dead/stop"
    )
    await intake.submit(form)
    assert (await state(intake))["state"] == "idle"
    await dead.put(b"3")
    await asyncio.sleep(0.5)
    assert await dead.depth() == 1
    await intake.submit(form, status=409)
    details = [e.detail for e in await context.store.audit(target=dead.name)]
    assert details == ["followed from now on", "stopped following"]


async def _has_taken(browser: Browser, count: int) -> bool:
    return (await state(browser))["taken"] == count


async def test_what_the_settings_follow_is_followed_from_the_start(
    context: ServerContext, dead: DeadQueue
) -> None:
    made = with_intakes(context, settings_of(dead.url, dead.name, follow=True))
    await dead.put(b"1")
    async with AsyncTestClient(build(made), base_url="http://127.0.0.1") as client:
        await eventually(lambda: _has_taken(Browser(client), 1), within=20.0)


async def test_a_server_that_is_away_is_trouble_and_shows_no_password(
    context: ServerContext,
) -> None:
    made = with_intakes(context, settings_of(NOWHERE, "orders.dead"))
    async with AsyncTestClient(build(made), base_url="http://127.0.0.1") as client:
        client.follow_redirects = True
        browser = Browser(client)
        form = (await browser.get("/intake")).form(button="Look")
        problem = await browser.submit(form, hx=True, status=503)
        page = await browser.get("/intake")

        assert "1 intake, 1 in trouble" in page.h1
        assert "s3cret" not in problem.raw + page.raw
        assert "s3cret" not in (await client.get("/api/v1/intakes")).text

        take = (await browser.get("/intake/orders-dead/dialog?act=take")).form(
            action="/intake/orders-dead/take"
        )
        said = await browser.submit(take, limit="10")
        assert "0 letters taken in from orders.dead, and then:" in said.text
        follow = (await browser.get("/intake/orders-dead/dialog?act=follow")).form(
            action="/intake/orders-dead/follow"
        )
        await browser.submit(follow)
        await eventually(lambda: _is_in_trouble(browser), within=20.0)
        stop = (await browser.get("/intake/orders-dead/dialog?act=stop")).form(
            action="/intake/orders-dead/stop"
        )
        await browser.submit(stop)


async def _is_in_trouble(browser: Browser) -> bool:
    return bool((await state(browser))["trouble"])


async def test_readers_look_only_and_limited_callers_see_none(guarded: ServerContext) -> None:
    made = with_intakes(guarded, settings_of(NOWHERE, "orders.dead"))
    async with AsyncTestClient(build(made), base_url="http://127.0.0.1") as client:
        for role, sources, names, code in (
            (Role.READER, (), ["orders-dead"], 403),
            (Role.OPERATOR, ("orders",), [], 404),
        ):
            shown = await token(made, role, *sources)
            headers = {"authorization": f"Bearer {shown}"}
            found = (await client.get("/api/v1/intakes", headers=headers)).json()
            assert [one["name"] for one in found] == names
            for act in ("look", "take", "follow", "stop"):
                answer = await client.post(
                    f"/api/v1/intakes/orders-dead/{act}", headers=headers, json={}
                )
                assert answer.status_code == code, (role, act)


@pytest.mark.parametrize(
    ("places", "wrong"),
    [
        ([IntakePlace(name="a", server="nowhere", place="q")], "is not in \\[sources\\]"),
        ([IntakePlace(name="a", server="shop", place="q")] * 2, "have the name 'a'"),
    ],
)
def test_wrong_settings_are_refused(
    context: ServerContext, places: list[IntakePlace], wrong: str
) -> None:
    settings = Settings(sources={"shop": SourceServer(url=NOWHERE)}, intake=tuple(places))

    with pytest.raises(ConfigError, match=wrong):
        with_intakes(context, settings)
