"""Acts on many letters: dialogs, forms, what is left alone, undo, and who may."""

from datetime import timedelta
from typing import Any

import pytest

from deadletter.core.access import Role
from deadletter.core.letter import By, State
from deadletter.office.audit import AuditFilter, latest_entries
from deadletter.office.verbs import VERBS, Verb
from deadletter.ports import LetterStore
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock
from office.making import NOW, make_letter
from server.console.conftest import Browser, SignedIn
from server.console.letters_rig import HOSTILE, act, fields_of, keep, move, states


async def reasons(store: LetterStore, action: str) -> set[tuple[str, str]]:
    """Return who did something for what reason."""
    entries = await latest_entries(store, AuditFilter(action=action), before=None, limit=50)
    return {(entry.actor, entry.reason) for entry in entries}


def starting(verb: str) -> State:
    """Return a state in which letters can be, for a verb."""
    return State.DISCARDED if verb == "restore" else State.REVIEWED


@pytest.mark.parametrize("verb", [one for one in VERBS if one.name not in {"review", "purge"}])
async def test_every_verb_of_the_table_acts_without_scripts(
    browser: Browser, context: ServerContext, verb: Verb
) -> None:
    name = verb.name
    ids = await keep(context.store, 3)
    await move(context.store, ids[:2], starting(name))

    page = await act(browser, name, ids=ids[:2], reason="because of this")

    assert f"2 letters {verb.done}." in page.find(id="notice").text
    assert browser.path.startswith("/letters")
    assert ("local", "because of this") in await reasons(context.store, "move")
    (letter,) = await context.store.get(ids[:1])
    assert letter.head.state == verb.new


async def test_reviewing_chosen_letters_and_undoing_it(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 3)

    page = await act(browser, "review", ids=ids[:2], reason="the bank was down")
    assert await states(context.store) == {"pending": 1, "reviewed": 2}

    undone = await browser.submit(page.form(button="Undo"))

    assert "2 letters reopened." in undone.find(id="notice").text
    assert await states(context.store) == {"pending": 3}
    assert ("local", "undo of review") in await reasons(context.store, "move")


async def test_undo_moves_only_what_the_act_moved(browser: Browser, context: ServerContext) -> None:
    ids = await keep(context.store, 4)
    await move(context.store, ids[:1], State.DISCARDED)
    page = await act(browser, "discard", ids=ids[:3])
    assert await states(context.store) == {"pending": 1, "discarded": 3}

    await browser.submit(page.form(button="Undo"))

    assert await states(context.store) == {"pending": 3, "discarded": 1}


async def test_undo_ends_after_ten_minutes(
    browser: Browser, context: ServerContext, clock: FakeClock
) -> None:
    ids = await keep(context.store, 1)
    page = await act(browser, "discard", ids=ids)

    clock.advance(601)
    late = await browser.submit(page.form(button="Undo"), status=409)

    assert "can no longer be undone" in late.text
    assert await states(context.store) == {"discarded": 1}


async def test_the_dialog_counts_and_says_what_is_left_alone(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 5)
    await move(context.store, ids[:1], State.CLOSED)
    await move(context.store, ids[1:3], State.REPLAYING)

    dialog = await browser.part(
        "/letters/dialog?verb=discard&q=" + "".join(f"&id={id_}" for id_ in ids)
    )

    assert dialog.find("h2").text == "Discard 2 letters"
    assert dialog.form(action="/letters/discard").buttons == ["Discard 2 letters"]
    assert "Left alone: 2 are replaying and 1 is closed." in dialog.text
    assert "Also 2 letters waiting for the outcome of a replay" in dialog.text


async def test_the_notice_says_what_was_left_alone_and_why(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 5)
    await move(context.store, ids[:1], State.CLOSED)
    await move(context.store, ids[1:3], State.REPLAYING)

    page = await act(browser, "discard", ids=ids)

    assert page.find(id="notice").find("p").text == (
        "2 letters discarded. 3 letters left alone: 1 is closed and 2 are replaying."
    )


async def test_waiting_letters_are_included_only_on_request(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 2)
    await move(context.store, ids[:1], State.REPLAYING)

    await act(browser, "close", ids=ids, unconfirmed="true")

    assert await states(context.store) == {"closed": 2}


async def test_nothing_to_do_is_a_conflict_with_the_reason(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 2)
    dialog = await browser.get(f"/letters/dialog?verb=review&q=&id={ids[0]}")
    form = dialog.form(action="/letters/review")
    await move(context.store, ids[:1], State.CLOSED)

    page = await browser.submit(form, status=409)

    assert "Nothing was reviewed. 1 letter left alone: it is closed." in page.text


async def test_a_dialog_with_nothing_to_do_has_no_button(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 1)

    dialog = await browser.part(f"/letters/dialog?verb=restore&q=&id={ids[0]}")

    assert dialog.find("h2").text == "Nothing to restore"
    assert dialog.forms[0].buttons == []


async def test_all_letters_of_a_search(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 60)
    await keep(context.store, 3, first=100, source="mails")

    page = await act(browser, "discard", query="source:orders")

    assert "60 letters discarded." in page.find(id="notice").text
    assert await states(context.store, "source:mails") == {"pending": 3}


async def test_a_search_that_finds_another_number_does_nothing(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 3)
    dialog = await browser.get("/letters/dialog?verb=discard&q=is:open&all=true")
    await context.store.keep([make_letter(900, died=timedelta(seconds=1), now=NOW)])

    page = await browser.submit(dialog.form(action="/letters/discard"), status=409)

    assert "4 letters match now, not 3" in page.text
    assert await states(context.store) == {"pending": 4}


async def test_a_search_without_the_number_is_refused(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 2)

    await browser.post("/letters/discard", q="is:open", status=400)

    assert await states(context.store) == {"pending": 2}


async def test_a_free_word_has_to_be_meant(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 2)

    refused = await act(browser, "discard", query="bank", status=400)
    assert "bank" in refused.text
    assert await states(context.store) == {"pending": 2}

    await act(browser, "discard", query="bank", free_text="true")
    assert await states(context.store) == {"discarded": 2}


async def test_nothing_chosen_is_refused(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 1)

    page = await browser.get("/letters/dialog?verb=discard&q=is:open", status=400)

    assert "No letter was chosen" in page.text
    await browser.post("/letters/discard", reason="x", status=400)
    assert await states(context.store) == {"pending": 1}


async def test_purging_needs_the_number_and_a_reason(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 3)

    await act(browser, "purge", ids=ids[:2], reason="GDPR", typed="3", status=400)
    await act(browser, "purge", ids=ids[:2], typed="2", status=400)
    assert await states(context.store) == {"pending": 3}

    page = await act(browser, "purge", ids=ids[:2], reason="GDPR", typed="2")

    assert page.find(id="notice").find("p").text == "2 letters purged."
    assert await states(context.store) == {"pending": 1}
    assert not any(one.text.startswith("Undo") for one in page.all("button"))


async def test_a_note_is_added_to_chosen_letters(browser: Browser, context: ServerContext) -> None:
    ids = await keep(context.store, 3)

    page = await act(browser, "note", ids=ids[:2], reason=f"asked the bank {HOSTILE}")

    assert "Note added to 2 letters." in page.find(id="notice").text
    entries = await latest_entries(context.store, AuditFilter(action="note"), before=None, limit=10)
    assert {entry.target for entry in entries} == set(ids[:2])


async def test_an_unknown_verb_is_missing(browser: Browser, context: ServerContext) -> None:
    ids = await keep(context.store, 1)

    page = await browser.get(f"/letters/dialog?verb=explode&q=&id={ids[0]}", status=404)

    assert "no act" in page.text


async def test_chosen_letters_lead_to_the_plan_of_a_replay(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 2)

    answer = await browser.client.get(
        f"/letters/dialog?verb=replay&q=is:open&id={ids[0]}&id={ids[1]}", follow_redirects=False
    )
    assert answer.status_code == 303
    assert fields_of(answer.headers["location"]) == {"q": f"id:[{ids[0]},{ids[1]}]"}

    answer = await browser.client.get(
        "/letters/dialog?verb=replay&q=is:open&all=true", headers={"hx-request": "true"}
    )
    assert answer.headers["hx-redirect"] == "/replays/new?q=is%3Aopen"


async def test_two_chosen_letters_can_be_compared(browser: Browser, context: ServerContext) -> None:
    one, two = await keep(context.store, 2)

    answer = await browser.client.get(
        f"/letters/dialog?verb=compare&q=&id={one}&id={two}", follow_redirects=False
    )
    assert answer.headers["location"] == f"/letters/{one}/compare?with={two}"

    page = await browser.get(f"/letters/dialog?verb=compare&q=&id={one}", status=400)
    assert "1 were chosen" in page.text


async def test_readers_see_acts_and_cannot_do_them(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    ids = await keep(guarded.store, 2)
    reader = await signed_in(Role.READER)

    page = await reader.get("/letters")
    disabled = {one.text: one.get("title") for one in page.all("button", aria_disabled="true")}

    assert disabled["Discard"] == disabled["Note"] == "This needs the role operator."
    assert "Purge" not in page.main.text
    await reader.get(f"/letters/dialog?verb=discard&q=&id={ids[0]}", status=403)
    csrf = await reader.csrf()
    await reader.post("/letters/discard", id=ids[0], csrf=csrf, status=403)
    assert await states(guarded.store) == {"pending": 2}


async def test_operators_cannot_purge(guarded: ServerContext, signed_in: SignedIn) -> None:
    ids = await keep(guarded.store, 1)
    operator = await signed_in(Role.OPERATOR)

    assert "Purge" not in (await operator.get("/letters")).main.text
    await operator.get(f"/letters/dialog?verb=purge&q=&id={ids[0]}", status=403)
    fields: dict[str, Any] = {"id": ids[0], "reason": "x", "typed": "1", "count": "1"}
    await operator.post("/letters/purge", csrf=await operator.csrf(), status=403, **fields)
    assert await states(guarded.store) == {"pending": 1}


async def test_acts_need_the_proof_of_the_session(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    ids = await keep(guarded.store, 1)
    operator = await signed_in(Role.OPERATOR)

    await operator.post("/letters/discard", id=ids[0], status=403)

    assert await states(guarded.store) == {"pending": 1}


async def test_letters_of_other_mailboxes_count_as_missing(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    hidden = await keep(guarded.store, 1)
    mine = await keep(guarded.store, 1, first=50, source="mails")
    operator = await signed_in(Role.OPERATOR, "mails")

    csrf = await operator.csrf()
    page = await operator.post("/letters/discard", id=[*mine, *hidden], csrf=csrf)

    notice = page.find(id="notice").text
    assert "1 letter discarded. 1 letter left alone: no longer there." in notice
    assert await states(guarded.store, "source:orders") == {"pending": 1}


async def test_searches_of_limited_callers_stay_in_their_mailboxes(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    await keep(guarded.store, 3)
    await keep(guarded.store, 2, first=50, source="mails")
    operator = await signed_in(Role.OPERATOR, "mails")

    page = await act(operator, "discard", query="error:TimeoutError")

    assert "2 letters discarded." in page.find(id="notice").text
    assert await states(guarded.store, "source:orders") == {"pending": 3}


async def test_others_cannot_undo_my_act(guarded: ServerContext, signed_in: SignedIn) -> None:
    ids = await keep(guarded.store, 1)
    mine = await signed_in(Role.OPERATOR, name="anna")
    other = await signed_in(Role.OPERATOR, name="ben")
    page = await act(mine, "discard", ids=ids)
    path = page.form(button="Undo").action

    await other.post(path, csrf=await other.csrf(), status=409)

    assert await states(guarded.store) == {"discarded": 1}


async def test_a_script_gets_the_notice_alone(browser: Browser, context: ServerContext) -> None:
    ids = await keep(context.store, 1)

    part = await browser.post("/letters/discard", hx=True, id=ids[0])

    assert part.html.lstrip().startswith('<div class="notice">')
    assert "1 letter discarded." in part.text
    assert "1 letter discarded." not in (await browser.get("/letters?q=")).text


async def test_a_purged_letter_is_no_longer_there(browser: Browser, context: ServerContext) -> None:
    ids = await keep(context.store, 2)
    dialog = await browser.get(f"/letters/dialog?verb=review&q=&id={ids[0]}&id={ids[1]}")
    await context.store.purge(ids[:1], By("anna", "secret"))

    page = await browser.submit(dialog.form(action="/letters/review"))

    assert "1 letter reviewed. 1 letter left alone: no longer there." in page.text
