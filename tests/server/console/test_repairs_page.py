"""The screen of repairs: choose, look, repair, undo, plan the replay; without scripts, too."""

from typing import Any
from urllib.parse import quote

import pytest
from msgspec import structs

from deadletter.core.access import Role
from deadletter.core.letter import By, Changes, DeadLetter, State
from deadletter.core.patch import parse_patch
from deadletter.office import repair
from deadletter.office.selection import Chosen
from deadletter.server.auth.authenticator import LOCAL
from deadletter.server.console.errands import Allowed
from deadletter.server.console.repairs import desk
from deadletter.server.console.repairs.page import load_repair
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock, eventually
from html_pages import Form, Page
from office.making import BY, make_letter
from server.console.conftest import Browser, SignedIn
from server.console.letters_rig import HOSTILE

GROUP = "2-46cb6f2e"
EUR: dict[str, Any] = {"patch": '{"currency": "EUR"}', "was": '{"currency": "eur"}'}
QUERY = f"group:{GROUP} is:open"


def dead(number: int, body: bytes, **more: Any) -> DeadLetter:
    return make_letter(number, body=body, fingerprint=GROUP, **more)


async def keep(context: ServerContext, *, more: int = 0) -> list[DeadLetter]:
    """Keep two letters that fit, and one of each other kind."""
    made = [
        dead(1, b'{"currency": "eur", "n": 1}'),
        dead(2, b'{"currency":"eur","n":2,"password":"hunter2"}'),
        dead(3, b'{"currency": "usd"}'),
        dead(4, b'["eur"]'),
        dead(5, b"no"),
        dead(6, b'{"currency": "EUR"}'),
        dead(7, b'{"currency": "eur"}', state=State.CLOSED),
        *(dead(number, b'{"currency": "eur"}') for number in range(8, 8 + more)),
    ]
    await context.store.keep(made)
    return made


async def bodies(context: ServerContext, letters: list[DeadLetter]) -> list[bytes]:
    found = {one.id: one for one in await context.store.get([one.id for one in letters])}
    return [found[one.id].message.body for one in letters]


def rows(page: Page) -> dict[str, str]:
    """Return the verdicts: how many letters have which."""
    found = {}
    for one in page.all("li"):
        kind = one.get("class", "")
        if kind.startswith("is-"):
            amount = next(part.text for part in one.all("span") if part.get("class") == "amount")
            found[kind.removeprefix("is-")] = amount
    return found


async def look(browser: Browser, query: str = "source:orders", **fields: str) -> Page:
    """Fill in the form of a repair, and look at what it would change."""
    page = await browser.get(f"/repairs/new?q={quote(query)}")
    return await browser.submit(page.form(action="/repairs"), **(EUR | fields))


def form_of(page: Page, path: str) -> Form:
    return page.form(action=path)


async def test_a_repair_is_looked_at_made_and_sent_back(
    browser: Browser, context: ServerContext
) -> None:
    letters = await keep(context)
    page = await look(browser)

    assert rows(page) == {
        "change": "2",
        "unchanged": "1",
        "other_value": "1",
        "other_shape": "1",
        "not_json": "1",
        "wrong_state": "1",
    }
    assert "The change fits 2 of 7 letters" in page.text
    assert "hunter2" not in page.text
    assert letters[2].id[:10] in page.text
    assert await bodies(context, letters) == [one.message.body for one in letters]

    path = browser.path
    page = await browser.submit(form_of(page, path), reason="the shop sent lower case")
    assert browser.path == path
    assert "2 letters repaired" in page.text
    assert (await bodies(context, letters))[:3] == [
        b'{"currency": "EUR", "n": 1}',
        b'{"currency":"EUR","n":2,"password":"hunter2"}',
        b'{"currency": "usd"}',
    ]

    page = await browser.submit(form_of(page, f"{path}/replay"))
    assert browser.path.startswith("/replays/")
    (campaign,) = await context.store.campaigns(limit=9)
    assert campaign.reason == "repaired: the shop sent lower case"
    assert campaign.plan is not None
    assert campaign.plan.total == 2
    assert (campaign.query, campaign.care.canary, campaign.care.ramp) == ("source:orders", 10, True)
    again = await browser.get(path)
    assert any(link.endswith(campaign.id) for link in again.links)


async def test_a_repair_is_made_once(browser: Browser, context: ServerContext) -> None:
    await keep(context)
    page = await look(browser)
    path = browser.path
    form = form_of(page, path)
    await browser.submit(form, reason="once")

    page = await browser.submit(form, reason="twice", status=409)

    assert "made already" in page.text
    edits = [one for one in await context.store.audit(limit=500) if one.action == "edit"]
    assert [one.reason for one in edits] == ["once", "once"]


async def test_a_repair_is_undone_but_not_what_was_changed_since(
    browser: Browser, context: ServerContext
) -> None:
    letters = await keep(context)
    page = await look(browser)
    page = await browser.submit(form_of(page, browser.path), reason="why")
    undo = next(form for form in page.forms if form.action.startswith("/undo/"))
    theirs = Changes(body=b"{}")
    await context.office.letters.edit(letters[0].id, theirs, By("bob"))

    page = await browser.submit(undo)

    assert "1 letter as before the repair. 1 letter left alone: changed meanwhile." in page.text
    assert (await bodies(context, letters))[:2] == [b"{}", letters[1].message.body]


async def test_the_change_of_one_edit_is_offered_for_its_group(
    browser: Browser, context: ServerContext
) -> None:
    letters = await keep(context)
    changes = Changes(body=b'{"currency": "EUR", "n": 1}')
    await context.office.letters.edit(letters[0].id, changes, BY)

    page = await browser.get(f"/letters/{letters[0].id}")
    offered = page.find(id="same")
    offer = await browser.part(offered["hx-get"])
    assert "The same change fits 1 of the 5 other open letters of its group." in offer.text

    (link,) = offer.links
    page = await browser.get(link)
    form = page.form(action="/repairs")
    assert form.values["q"] == [QUERY]
    assert form.values["patch"] == ['{"currency": "EUR"}']
    assert form.values["was"] == ['{"currency": "eur"}']
    page = await browser.submit(form)
    assert rows(page)["change"] == "1"
    reveals = await context.store.audit(target=letters[0].id)
    assert "reveal" in [one.action for one in reveals]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"currency": ["a"], "n": 1}', "fits none of"),
        (b'{"currency": null, "n": 1}', "sets /currency to null"),
        (b"text", "not JSON"),
    ],
)
async def test_edits_that_cannot_be_repeated_say_why(
    browser: Browser, context: ServerContext, body: bytes, said: str
) -> None:
    made = [dead(1, b'{"currency": "eur", "n": 1}'), dead(2, b'{"currency": "usd"}')]
    await context.store.keep(made)
    await context.office.letters.edit(made[0].id, Changes(body=body), BY)

    offer = await browser.part(f"/letters/{made[0].id}/repair-offer")
    assert said in offer.text
    page = await browser.get(f"/repairs/new?from={made[0].id}")
    assert page.form(action="/repairs").values["q"] == [QUERY]


async def test_a_letter_that_was_not_edited_offers_nothing(
    browser: Browser, context: ServerContext
) -> None:
    letters = await keep(context)

    page = await browser.get(f"/letters/{letters[0].id}")
    offer = await browser.part(f"/letters/{letters[0].id}/repair-offer")

    assert not page.all(id="same")
    assert offer.text.strip() == ""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"patch": '{"a": }'}, "The patch is not JSON: line 1, column 7"),
        ({"patch": "[]"}, "must be a JSON object"),
        ({"was": "3"}, "must be a JSON object"),
        ({"q": "source:nothing"}, "No letter matches"),
        ({"q": "source:"}, "source"),
        ({"q": "timeout"}, "timeout"),
    ],
)
async def test_what_was_typed_stays_when_it_is_wrong(
    browser: Browser, context: ServerContext, fields: dict[str, str], said: str
) -> None:
    await keep(context)
    page = await browser.get("/repairs/new?q=source:orders")

    page = await browser.submit(page.form(action="/repairs"), status=400, **(EUR | fields))

    assert said.lower() in page.text.lower()
    form = page.form(action="/repairs")
    assert form.values["patch"] == [(EUR | fields)["patch"]]


async def test_a_repair_needs_a_reason_and_the_number_that_was_shown(
    browser: Browser, context: ServerContext
) -> None:
    letters = await keep(context)
    form = form_of(await look(browser), browser.path)

    await browser.submit(form, reason=" ", status=400)
    await browser.submit(form, reason="why", expect="3", status=409)

    assert await bodies(context, letters) == [one.message.body for one in letters]


async def test_a_change_that_fits_no_letter_says_so(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context)

    page = await look(browser, was='{"currency": "chf"}')

    assert "Nothing would change." in page.text
    assert not [form for form in page.forms if form.action == browser.path]
    path = browser.path
    await browser.post(path, reason="why", expect="0", status=409)
    await browser.post(f"{path}/replay", status=409)


async def test_many_letters_are_judged_and_repaired_in_the_background(
    browser: Browser, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "AT_ONCE", 3)
    letters = await keep(context, more=10)
    page = await look(browser)
    path = browser.path

    async def there(text: str) -> Page:
        async def shown() -> bool:
            return text in (await browser.part(f"{path}?part=stage")).text

        await eventually(shown)
        return await browser.get(path)

    page = await there("The change fits 12 of 17 letters")
    await browser.submit(form_of(page, path), reason="why")
    page = await there("Send them back")

    assert (await bodies(context, letters)).count(b'{"currency": "EUR"}') == 11
    undo = next(form for form in page.forms if form.action.startswith("/undo/"))
    await browser.submit(undo)

    async def undone() -> bool:
        return await bodies(context, letters) == [one.message.body for one in letters]

    await eventually(undone)


async def test_a_repair_that_ended_early_can_go_on(
    browser: Browser, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = iter(["", "", "your token was revoked"])

    def still_allowed(*_: object) -> Allowed:
        async def why_not() -> str:
            return next(allowed, "")

        return why_not

    letters = await keep(context, more=10)
    page = await look(browser)
    path = browser.path
    monkeypatch.setattr(desk, "AT_ONCE", 3)
    monkeypatch.setattr(repair, "_STEP", 5)
    monkeypatch.setattr(desk, "still_allowed", still_allowed)

    async def there(text: str) -> Page:
        async def shown() -> bool:
            return text in (await browser.part(f"{path}?part=stage")).text

        await eventually(shown)
        return await browser.get(path)

    await browser.submit(form_of(page, path), reason="why")
    page = await there("It ended early: your token was revoked.")
    assert "10 letters repaired" in page.text
    assert any(one.action == "errand" for one in await context.store.audit(limit=500))

    await browser.submit(form_of(page, path), reason="why")
    page = await there("12 letters repaired")
    assert "It ended early" not in page.text
    assert (await bodies(context, letters)).count(b'{"currency": "EUR"}') == 11


async def test_samples_are_few_and_more_on_demand(browser: Browser, context: ServerContext) -> None:
    await keep(context, more=12)
    page = await look(browser)
    assert len([one for one in page.all("div") if "difference" in one.get("class", "")]) == 5

    more = next(link for link in page.links if "samples=" in link)
    page = await browser.get(more.partition("#")[0])

    assert len([one for one in page.all("div") if "difference" in one.get("class", "")]) == 10


async def test_hostile_bodies_and_patches_stay_text(
    browser: Browser, context: ServerContext
) -> None:
    body = '{"currency": "eur", "x": "<script>x()</script> \\u202e \u202e </textarea>"}'
    await context.store.keep([dead(1, body.encode())])
    patch = '{"currency": "<script>\u202e</textarea>"}'

    page = await look(browser, patch=patch)

    assert "\u202e" not in page.text
    assert not [one for one in page.all("script") if not one.get("src")]
    assert rows(page) == {"change": "1"}
    page = await browser.submit(form_of(page, browser.path), reason=HOSTILE)
    (letter,) = await context.store.get([make_letter(1).id])
    assert "<script>\u202e</textarea>" in letter.message.body.decode()


async def test_readers_are_not_let_in_and_do_not_see_the_offer(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    letters = await keep(guarded)
    changes = Changes(body=b'{"currency": "EUR", "n": 1}')
    await guarded.office.letters.edit(letters[0].id, changes, BY)
    reader = await signed_in(Role.READER)

    await reader.get("/repairs/new", status=403)
    page = await reader.get(f"/letters/{letters[0].id}")

    assert not page.all(id="same")


async def test_those_limited_to_a_mailbox_repair_only_what_they_see(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    letters = await keep(guarded)
    other = dead(50, b'{"currency": "eur"}', source="mails")
    await guarded.store.keep([other])
    limited = await signed_in(Role.OPERATOR, "mails", name="limited")
    operator = await signed_in(Role.OPERATOR, name="operator")

    page = await look(limited, "is:open")
    path = limited.path
    assert rows(page) == {"change": "1"}
    await limited.submit(form_of(page, path), reason="mine")

    assert await bodies(guarded, [letters[0], other]) == [
        letters[0].message.body,
        b'{"currency": "EUR"}',
    ]
    await operator.get(path, status=404)
    await limited.get(f"/repairs/new?from={letters[0].id}", status=404)


async def test_a_repair_is_found_again_for_an_hour(
    browser: Browser, context: ServerContext, clock: FakeClock
) -> None:
    await keep(context)
    await look(browser)
    path = browser.path

    assert path in (await browser.get("/repairs/new")).links
    clock.advance(desk.LASTS + 1)
    page = await browser.get(path, status=404)
    assert "Begin it again" in page.text
    assert path not in (await browser.get("/repairs/new")).links


async def test_the_page_says_that_no_second_person_is_asked(context: ServerContext) -> None:
    letters = await keep(context)
    serve = structs.replace(context.settings.serve, approve_above=10)
    strict = structs.replace(context, settings=structs.replace(context.settings, serve=serve))
    chosen = Chosen(tuple(one.id for one in letters), "source:orders")
    begun = desk.Repair(LOCAL, chosen, parse_patch(EUR["patch"]), context.clock.now())

    page = await load_repair(strict, begun, 5)

    assert (
        page.approval == "Replays of more than 10 letters need a second person; a repair does not."
    )
