"""A test leaves nothing behind, and sees nothing of another one."""

import asyncio
import gc
import threading
import unittest
from pathlib import Path

import pytest

from deadletter import App, NoBackoff
from deadletter.core.errors import ConfigError
from deadletter.harness import make_letter, make_message
from deadletter.sync import SyncApp
from deadletter.testing.fakes import eventually

app = App("postgresql://nobody@192.0.2.1/none")  # as in a module of its own: never opened
sync_app = SyncApp(app)


@app.handler("orders", max_attempts=2, backoff=NoBackoff())
async def charge(order: dict) -> None:  # type: ignore[type-arg]
    await app.send("mails", order["to"])


@app.handler("imports")
def load(rows: list[int]) -> None:
    for row in rows:
        sync_app.send("orders", {"to": row})


async def test_tests_at_once_do_not_see_each_other() -> None:
    async def one(number: int) -> list[object]:
        async with app.testing() as t:
            for _ in range(number):
                await asyncio.sleep(0)
                await charge.send({"to": number})
            await t.send("orders", {"bad": number})
            await t.settled()
            assert len(t.letters()) == 1
            return [sent.value for sent in t.sent]

    found = await asyncio.gather(*(one(number) for number in range(1, 6)))

    assert found == [[number] * number for number in range(1, 6)]


async def test_code_that_belongs_to_none_of_several_tests_is_refused() -> None:
    outside = asyncio.Queue[asyncio.Future[object]]()

    async def sender() -> None:
        while True:
            answer = await outside.get()
            try:
                answer.set_result(await app.send("orders", {"to": 1}))
            except ConfigError as error:
                answer.set_exception(error)

    async def ask() -> object:
        answer = asyncio.get_running_loop().create_future()
        outside.put_nowait(answer)
        return await answer

    sending = asyncio.create_task(sender())
    async with app.testing() as first:
        await ask()
        await first.settled()
        assert [sent.value for sent in first.sent] == [1]
        async with app.testing() as second:
            with pytest.raises(ConfigError, match="in 2 tests at once"):
                await ask()
            await first.send("orders", {"to": 2})
            await first.settled()
            assert (len(first.sent), second.sent) == (2, [])
    sending.cancel()


async def test_the_app_works_as_before_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    shop = App(f"sqlite:///{file}")
    handled = []

    @shop.handler("orders")
    async def handle(name: str) -> None:
        handled.append(name)

    loop = asyncio.get_running_loop()
    before = set(vars(loop))
    async with shop.testing() as t:
        await handle.send("in the test")
        await t.settled()
        assert not file.exists()
    assert set(vars(loop)) == before

    stop = asyncio.Event()
    async with shop:
        await handle.send("for real")
        working = asyncio.create_task(shop.work(stop))
        await eventually(lambda: len(handled) == 2)
        stop.set()
        assert await working == 0
    assert file.exists()
    assert handled == ["in the test", "for real"]


def test_handlers_on_threads_send_through_a_sync_app() -> None:
    with app.testing() as t:
        t.send("imports", [1, 2])
        sync_app.send("orders", {"to": 3})
        t.settled()
        assert sorted(sent.value for sent in t.sent if sent.mailbox == "mails") == [1, 2, 3]
    sync_app.app.check_only(None)


def test_the_sync_form_does_all_of_it_and_ends_its_thread() -> None:
    shop = App("redis://192.0.2.1")

    @shop.handler("orders", max_attempts=2)
    async def handle(name: str) -> None:
        await shop.send("mails", name)
        if not fixed:
            raise TimeoutError("closed")

    fixed = False
    with shop.testing(seed=7) as t:
        began = t.clock.now()
        t.send("orders", "a", id="o-1", delay=60)
        t.settled(patience=1)
        assert [message.id for message in t.messages("orders")] == ["o-1"]
        t.clock.advance(60)
        t.settled()
        assert t.letter("orders").head.attempts == 2
        assert (len(t.sent), len(t.raised)) == (2, 2)
        with pytest.raises(AssertionError, match="TimeoutError: closed"):
            t.no_letters()
        fixed = True
        assert t.replay().state == "done"
        assert t.letters()[0].head.state == "replayed"
        assert (t.clock.now() - began).total_seconds() == t.clock.monotonic() >= 60
        assert t.events
    assert "deadletter-testing" not in {thread.name for thread in threading.enumerate()}


async def test_background_tasks_of_handlers_go_on_after_the_test() -> None:
    shop = App("redis://192.0.2.1")
    tasks = []

    @shop.handler("orders")
    async def handle(name: str) -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(0.02, name)))

    async with shop.testing() as t:
        await t.send("orders", "a")
        await t.settled()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*tasks) == ["a"]
    gc.collect()


async def test_settling_after_the_end_is_refused() -> None:
    async with app.testing() as t:
        pass

    with pytest.raises(ConfigError, match="this test has ended"):
        await t.settled()


class TestUnderUnittest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.t = await self.enterAsyncContext(app.testing())

    async def test_a_test_that_awaits(self) -> None:
        await charge.send({"to": "x"})
        await self.t.settled()
        assert [sent.value for sent in self.t.sent] == ["x"]


class TestUnderUnittestWithoutAwaiting(unittest.TestCase):
    def test_a_test_that_does_not_await(self) -> None:
        t = self.enterContext(app.testing())
        t.send("orders", {})
        t.settled()
        assert t.letter().head.error_name == "KeyError"


async def test_a_message_for_a_single_handler() -> None:
    @(shop := App("redis://192.0.2.1")).handler("orders")
    async def handle(order: dict) -> int:  # type: ignore[type-arg]
        return int(order["amount"]) * 2

    message = make_message({"amount": 21}, id="o-1", key="k", headers={"a": "b"})

    assert await shop.handle("orders", message) == 42
    assert (message.id, message.key, message.header("a")) == ("o-1", "k", "b")


def test_a_letter_for_a_handler_of_letters() -> None:
    letter = make_letter({"id": 1}, source="orders", error=KeyError("vat_rate"), attempts=3)

    assert letter.message.body == b'{"id":1}'
    assert (letter.head.source, letter.head.error_name) == ("orders", "KeyError")
    assert [attempt.number for attempt in letter.story()] == [1, 2, 3]
