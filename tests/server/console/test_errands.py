"""Long acts: they go on without the page, say how far they are, and end honestly."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from threading import Event, Timer

import pytest
from litestar.testing import AsyncTestClient

from deadletter.core.access import Identity, Role, Token
from deadletter.core.errors import Conflict, NotFound, Unavailable
from deadletter.core.letter import By
from deadletter.office.audit import AuditFilter, latest_entries
from deadletter.ports import Move
from deadletter.server.app import build
from deadletter.server.console.errands import LASTS, Errand, Errands, Progress
from deadletter.server.console.letters.errand_routes import shown_to
from deadletter.server.console.notices import Notice
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock, eventually
from html_pages import Page
from server.console.conftest import Browser, SignedIn
from server.console.letters_rig import act, keep, states

ANNA = Identity(name="anna", role=Role.OPERATOR, principal="p-1")
BEN = Identity(name="ben", role=Role.OPERATOR, principal="p-2", sources=("mails",))


class Work:
    """Steps of ten letters that wait until the test lets them go on."""

    def __init__(self, steps: int = 3) -> None:
        self.steps = steps
        self.turns = asyncio.Semaphore(0)
        self.finished: list[str] = []
        self.told: list[Notice] = []
        self.why_not = ""
        self.error: Exception | None = None

    async def run(self) -> AsyncIterator[Progress]:
        for step in range(1, self.steps + 1):
            await self.turns.acquire()
            if self.error is not None:
                raise self.error
            yield Progress(step * 10, step * 9)

    async def finish(self, ended_early: str) -> Notice:
        self.finished.append(ended_early)
        return Notice(text=f"done, {ended_early or 'all'}")

    async def allowed(self) -> str:
        return self.why_not

    def begin(self, errands: Errands, who: Identity = ANNA) -> Errand:
        return errands.begin(
            who,
            "Count letters",
            self.steps * 10,
            steps=self.run(),
            finish=self.finish,
            allowed=self.allowed,
            tell=self.told.append,
        )

    def go_on(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.turns.release()


async def reached(errand: Errand, seen: int) -> None:
    async def there() -> bool:
        return errand.progress.seen == seen

    await eventually(there)


async def ended(errand: Errand) -> None:
    async def has_ended() -> bool:
        return errand.ended is not None

    await eventually(has_ended)


@pytest.fixture
def errands(clock: FakeClock) -> Errands:
    return Errands(clock)


async def test_an_errand_tells_how_far_it_is_and_what_it_did(errands: Errands) -> None:
    work = Work()
    errand = work.begin(errands)

    work.go_on()
    await reached(errand, 10)
    assert errand.progress == Progress(10, 9)
    assert errand.ended is None

    work.go_on(2)
    await ended(errand)
    assert errand.ended_early == ""
    assert work.told == [errand.notice] == [Notice(text="done, all")]


async def test_a_stopped_errand_ends_after_its_step(errands: Errands) -> None:
    work = Work()
    errand = work.begin(errands)
    errand.stop = "anna stopped it"

    work.go_on(3)
    await ended(errand)

    assert errand.progress.seen == 10
    assert work.finished == ["anna stopped it"]


async def test_an_errand_ends_when_its_author_loses_access(errands: Errands) -> None:
    work = Work()
    errand = work.begin(errands)
    work.go_on()
    await reached(errand, 10)

    work.why_not = "your token was revoked"
    work.go_on(2)
    await ended(errand)

    assert errand.progress.seen == 20
    assert work.finished == ["your token was revoked"]


async def test_nothing_is_done_for_somebody_without_access(errands: Errands) -> None:
    work = Work()
    work.why_not = "your token was revoked"
    errand = work.begin(errands)
    work.go_on(3)

    await ended(errand)

    assert errand.progress.seen == 0


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Unavailable("the store is away"), "the store is away"),
        (ValueError("secret"), "of an unexpected error: see the log"),
    ],
)
async def test_an_error_ends_it_and_what_is_done_is_said(
    errands: Errands, error: Exception, said: str
) -> None:
    work = Work()
    errand = work.begin(errands)
    work.go_on()
    await reached(errand, 10)

    work.error = error
    work.go_on()
    await ended(errand)

    assert work.finished == [said]
    assert errand.progress.seen == 10


async def test_the_end_of_the_server_stops_errands_and_says_so(errands: Errands) -> None:
    work = Work()
    errand = work.begin(errands)
    closing = asyncio.create_task(errands.close())
    await asyncio.sleep(0)
    work.go_on(3)
    await closing

    assert errand.progress.seen == 10
    assert work.finished == ["the server was stopped"]


async def test_a_few_errands_at_once_are_enough(errands: Errands) -> None:
    works = [Work(), Work(), Work()]
    for work in works[:2]:
        work.begin(errands)

    with pytest.raises(Conflict, match="2 of them yours"):
        works[2].begin(errands)

    other = works[2].begin(errands, BEN)
    for work in works:
        work.go_on(3)
    await ended(other)


async def test_an_errand_is_shown_for_an_hour(errands: Errands, clock: FakeClock) -> None:
    work = Work(1)
    errand = work.begin(errands)
    work.go_on()
    await ended(errand)

    clock.advance(LASTS - 1)
    assert errands.find(ANNA, errand.key) is errand
    clock.advance(2)
    with pytest.raises(NotFound, match="The audit says"):
        errands.find(ANNA, errand.key)


async def test_limited_callers_see_their_own_errands_only(errands: Errands) -> None:
    work = Work(1)
    errand = work.begin(errands)

    with pytest.raises(NotFound):
        errands.find(BEN, errand.key)

    work.go_on()
    await ended(errand)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> int:
    """Make acts on more than this many letters long ones."""
    for module in ("act_dialogs", "bulk_acts"):
        monkeypatch.setattr(f"deadletter.server.console.letters.{module}.LONG", 10)
    return 10


@pytest.fixture
def held(context: ServerContext, monkeypatch: pytest.MonkeyPatch) -> Event:
    """Hold letters back from moving until the event is set."""
    event = Event()
    move = context.store.move

    async def moving(wanted: Move, by: By) -> Sequence[str]:
        await asyncio.to_thread(event.wait)
        return await move(wanted, by)

    monkeypatch.setattr(context.store, "move", moving)
    return event


async def finished(browser: Browser, path: str) -> Page:
    """Wait until the page of an errand says that it has ended."""
    found: list[Page] = []

    async def has_ended() -> bool:
        page = await browser.part(f"{path}?part=progress")
        found.append(page)
        return "hx-trigger" not in page.find(id="errand").attrs

    await eventually(has_ended)
    return found[-1]


async def test_an_act_on_many_letters_goes_on_in_the_server(
    browser: Browser, context: ServerContext, long: int, held: Event
) -> None:
    await keep(context.store, long + 2)

    page = await act(browser, "discard", query="is:open", reason="old")

    assert browser.path.startswith("/errands/")
    assert page.h1 == "Discard 12 letters"
    assert "0 of 12 looked at" in page.main.text
    held.set()
    end = await finished(browser, browser.path)
    assert "12 of 12 looked at · 12 changed" in end.text
    assert "12 letters discarded." in end.text
    assert await states(context.store) == {"discarded": 12}
    assert "12 letters discarded." in (await browser.get("/letters")).find(id="notice").text


async def test_a_script_is_led_to_the_page_of_a_long_act(
    browser: Browser, context: ServerContext, long: int
) -> None:
    await keep(context.store, long + 1)

    await browser.post("/letters/discard", hx=True, q="is:open", expect=str(long + 1))

    assert browser.last is not None
    path = browser.last.headers["hx-redirect"]
    await finished(browser, path)


async def test_undo_of_a_long_act_is_long_as_well(
    browser: Browser, context: ServerContext, long: int, held: Event
) -> None:
    await keep(context.store, long + 2)
    held.set()
    await act(browser, "discard", query="is:open")
    page = await finished(browser, browser.path)

    held.clear()
    undone = await browser.submit(page.form(button="Undo"))
    held.set()

    path = undone.link("See how far it is")
    assert "12 letters restored." in (await finished(browser, path)).text
    assert await states(context.store) == {"pending": 12}


async def test_a_revoked_token_ends_its_long_act(
    guarded: ServerContext, signed_in: SignedIn, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(guarded.store, long + 2)
    operator = await signed_in(Role.OPERATOR)
    access = guarded.access
    assert access is not None
    tokens = await access.tokens()
    asked: list[int] = []

    async def tokens_of() -> Sequence[Token]:
        asked.append(1)
        return [] if len(asked) > 1 else tokens

    monkeypatch.setattr(access, "tokens", tokens_of)
    await act(operator, "discard", query="is:open")
    end = await finished(operator, operator.path)

    assert "It ended early: your token was revoked." in end.text
    entries = await latest_entries(
        guarded.store, AuditFilter(action="errand"), before=None, limit=5
    )
    assert [entry.detail for entry in entries] == [
        "discard ended after 12 of 12 letters: your token was revoked"
    ]


async def test_errands_can_be_stopped_by_their_author(
    browser: Browser, context: ServerContext, long: int, held: Event
) -> None:
    await keep(context.store, 600)
    page = await act(browser, "discard", query="is:open")
    path = browser.path
    stop = page.form(action=f"{path}/stop")

    stopping = await browser.submit(stop)
    assert "It stops after this step. About 600 letters" in stopping.find(id="notice").text
    held.set()
    end = await finished(browser, path)

    assert "500 letters discarded. 100 letters not reached, because local stopped it." in end.text
    assert await states(context.store) == {"discarded": 500, "pending": 100}
    late = await browser.submit(stop, status=409)
    assert "ended already" in late.text


async def test_the_end_of_the_server_is_said_in_the_audit(
    context: ServerContext, long: int, held: Event
) -> None:
    await keep(context.store, 600)
    app = build(context)
    async with AsyncTestClient(app, base_url="http://127.0.0.1") as client:
        form = {"q": "is:open", "expect": "600"}
        answer = await client.post("/letters/discard", data=form, follow_redirects=False)
        assert answer.status_code == 303
        Timer(0.2, held.set).start()

    assert await states(context.store) == {"discarded": 500, "pending": 100}
    found = await latest_entries(context.store, AuditFilter(action="errand"), before=None, limit=5)
    assert [entry.detail for entry in found] == [
        "discard ended after 500 of 600 letters: the server was stopped"
    ]


async def test_only_the_author_is_offered_to_undo(errands: Errands) -> None:
    work = Work(1)
    errand = work.begin(errands)
    work.go_on()
    await ended(errand)
    errand.notice = Notice(text="done", undo="/undo/1")
    chief = Identity(name="chief", role=Role.ADMIN, principal="p-9")

    mine, theirs = shown_to(ANNA, errand).notice, shown_to(chief, errand).notice

    assert mine is not None
    assert mine.undo == "/undo/1"
    assert theirs == Notice(text="done")


async def test_unknown_errands_say_where_to_look(browser: Browser) -> None:
    page = await browser.get("/errands/0123456789abcdef", status=404)

    assert "The audit says what was done" in page.text
