"""The page of a letter: what it says, what can be done there, who may."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from deadletter.core.access import Role
from deadletter.core.attempts import Attempt, append
from deadletter.core.letter import By, Changes, State
from deadletter.office.verbs import VERBS
from deadletter.ports import Move
from deadletter.server.console.pages import LONGEST
from deadletter.server.context import ServerContext
from office.making import make_letter, make_letters
from server.console.conftest import Browser, SignedIn
from server.console.letter_rig import actions, kept, order, section

STACK = (
    '  File "/srv/shop/main.py", line 12, in charge\n'
    '  File "/srv/.venv/lib/python3.12/site-packages/httpx/_client.py", line 9, in send\n'
    '  File "/srv/.venv/lib/python3.12/site-packages/httpx/_pool.py", line 7, in get\n'
    '  File "/srv/shop/bank.py", line 88, in call\n'
    "ConnectError: refused, Authorization: Bearer abcdef0123456789xyz"
)


async def test_it_says_what_broke_where_and_how_often(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    await context.store.keep(make_letters(3, now=context.clock.now()))

    page = await browser.get(f"/letters/{letter.id}")

    assert page.h1 == "pending TimeoutError: the bank did not answer"
    assert "Died 3 min ago in orders after 2 attempts (charge, version 1.8.0)." in page.main.text
    assert page.link("3 other letters like it") == f"/groups/{letter.head.fingerprint}"
    assert page.link("orders") == "/queues/orders"
    assert page.link("Plan replay… r") == f"/replays/new?q=id%3A{letter.id}"
    assert f"dlq show {letter.id}" in page.text
    assert page.link("as an API call") == f"/api/v1/letters/{letter.id}"


async def test_the_beginning_of_an_id_is_enough(browser: Browser, context: ServerContext) -> None:
    letter = await kept(context)

    page = await browser.get(f"/letters/{letter.id[:8]}")

    assert letter.id in page.main.text


@pytest.mark.parametrize(
    "part", ["head", "contents", "body", "lines", "headers", "trace", "story", "near"]
)
async def test_every_part_is_what_the_page_has(
    browser: Browser, context: ServerContext, part: str
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}")

    alone = await browser.part(f"/letters/{letter.id}?part={part}")

    assert alone.text
    assert alone.text in page.main.text
    assert "<main" not in alone.html


async def test_a_part_that_has_not_changed_is_not_sent_again(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    await browser.part(f"/letters/{letter.id}?part=head")
    assert browser.last is not None
    tag = browser.last.headers["hx-ptag"]

    answer = await browser.client.get(
        f"/letters/{letter.id}?part=head",
        headers={"accept": "text/html", "hx-request": "true", "hx-ptag": tag},
    )

    assert answer.status_code == 304


async def test_the_frames_of_libraries_are_folded(browser: Browser, context: ServerContext) -> None:
    letter = await kept(context, stack=STACK)

    stack = section(await browser.get(f"/letters/{letter.id}"), "stack")

    assert "bank.py:88 in call" in stack.text
    assert [one.text for one in stack.all("mark")] == [
        'File "/srv/shop/main.py", line 12, in charge',
        'File "/srv/shop/bank.py", line 88, in call',
    ]
    folded = [one for one in stack.all("details") if "class" not in one.attrs]
    assert [one.find("summary").text for one in folded] == ["2 frames of libraries"]
    assert "ConnectError: refused" in stack.text
    assert "abcdef0123456789xyz" not in stack.text


async def test_the_stack_of_every_attempt_is_one_link_away(
    browser: Browser, context: ServerContext
) -> None:
    letter = order(context.clock.now())
    history = ""
    for number in (1, 2):
        attempt = Attempt(
            number=number,
            at=letter.head.dead_at,
            error_type="shop.Odd",
            stack=f'File "shop.py", line {number}00, in charge',
        )
        history = append(history, attempt)
    await context.store.keep([replace(letter, history=history)])

    page = await browser.get(f"/letters/{letter.id}")
    first = await browser.get(page.link("attempt 1"))

    assert "line 200" in section(page, "stack").find(class_="code").text
    assert "line 100" in section(first, "stack").find(class_="code").text


async def test_the_story_has_attempts_acts_and_reasons(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    await context.office.letters.review([letter.id], By("anna", "the bank was down"))
    await context.office.letters.note([letter.id], "asked the bank", By("ben"))

    story = section(await browser.get(f"/letters/{letter.id}"), "story")

    rows = [one.text for one in story.find("ol").all("li")]
    assert any("attempt 2 failed after 250 ms" in row for row in rows)
    assert any("died: failed 2 of 2 attempts" in row for row in rows)
    assert any("anna reviewed it, because: the bank was down" in row for row in rows)
    assert any("ben noted: asked the bank" in row for row in rows)
    assert len(story.find("svg").all("rect")) == 5
    assert "2 attempts, 1 death, 2 acts" in story.find("svg")["aria-label"]


async def test_an_error_that_differs_from_the_one_before_is_marked(
    browser: Browser, context: ServerContext
) -> None:
    letter = order(context.clock.now())
    other = Attempt(number=3, at=letter.head.dead_at, error_type="builtins.KeyError", text="'iban'")
    await context.store.keep([replace(letter, history=append(letter.history, other))])

    story = section(await browser.get(f"/letters/{letter.id}"), "story")

    assert story.text.count("another error") == 1


async def test_attempts_that_failed_alike_are_folded_in_the_story(
    browser: Browser, context: ServerContext
) -> None:
    letter = order(context.clock.now())
    history = ""
    for number in range(1, 7):
        at = letter.head.dead_at + timedelta(seconds=2**number)
        history = append(history, Attempt(number=number, at=at, error_type="shop.Odd", text="x"))
    await context.store.keep([replace(letter, history=history)])

    page = await browser.get(f"/letters/{letter.id}")

    told = section(page, "story").text
    assert "4 attempts more with the same error, 2 s to 32 s apart" in told
    assert "attempt 1 failed" in told
    assert "attempt 6 failed" in told
    assert "attempt 3 failed" not in told
    assert "attempt 3" in section(page, "stack").text


async def test_letters_near_it_are_counted_with_a_search(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    now = context.clock.now()
    await context.store.keep([make_letter(2, key="c-7", now=now, died=timedelta(minutes=1))])

    near = section(await browser.get(f"/letters/{letter.id}"), "near")

    rows = [one.text for one in near.all("li")]
    assert rows == ["same key 1 (1 newer)", "same group 1 (1 newer)"]
    assert near.all("a")[0]["href"].startswith("/letters?q=source%3Aorders%20key%3Ac-7")


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
async def test_every_verb_works_without_scripts(
    browser: Browser, context: ServerContext, verb: str
) -> None:
    letter = await kept(context)
    if verb == "restore":
        await context.office.letters.discard([letter.id], By("anna"))
    if verb == "reopen":
        await context.office.letters.close([letter.id], By("anna"))
    page = await browser.get(f"/letters/{letter.id}")
    paths = [*page.links, *(form.action for form in page.forms)]
    dialog, act = f"/letters/{letter.id}/{verb}/dialog", f"/letters/{letter.id}/{verb}"
    assert dialog in paths or act in paths

    if dialog in paths:
        form = (await browser.get(dialog)).form(action=act)
        more: dict[str, Any] = {"typed": letter.id[:6]} if verb == "purge" else {}
        said = await browser.submit(form, reason="because", **more)
    else:
        said = await browser.submit(page.form(action=act), reason="")

    if verb == "purge":  # the list of letters is another screen
        assert await context.store.get([letter.id]) == []
        return
    told = said.find(id="notice").text
    assert told.startswith(f"Letter {letter.id[:10]} ")
    if next(one for one in VERBS if one.name == verb).opposite:
        undone = await browser.submit(said.form(button="Undo"))
        assert f"Letter {letter.id[:10]} " in undone.find(id="notice").text


async def test_a_discarded_letter_can_be_brought_back_from_the_notice(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    form = (await browser.get(f"/letters/{letter.id}/discard/dialog")).form(button="Discard")

    said = await browser.submit(form, reason="not ours")
    undone = await browser.submit(said.form(button="Undo"))

    assert "discarded." in said.find(id="notice").text
    assert "restored: it is pending again." in undone.find(id="notice").text
    head = await context.office.letters.head(letter.id)
    assert head.state is State.PENDING
    entries = await context.store.audit(target=letter.id)
    assert [entry.reason for entry in entries] == ["not ours", "undone"]


async def test_scripts_get_the_dialog_as_a_part(browser: Browser, context: ServerContext) -> None:
    letter = await kept(context)

    part = await browser.part(f"/letters/{letter.id}/discard/dialog")
    said = await browser.submit(part.form(button="Discard 1 letter"), hx=True)

    assert part.find("h2").text == f"Discard letter {letter.id[:10]}?"
    assert "<html" not in part.html
    assert "discarded." in said.text


async def test_what_has_changed_meanwhile_is_refused_with_the_truth(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    form = (await browser.get(f"/letters/{letter.id}/discard/dialog")).form(button="Discard")
    await context.office.letters.close([letter.id], By("ben"))

    page = await browser.submit(form, status=409)

    assert "is closed: nothing was done" in page.text


async def test_a_purge_wants_its_reason_and_the_id_typed(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    form = (await browser.get(f"/letters/{letter.id}/purge/dialog")).form(button="Purge")

    untyped = await browser.submit(form, status=400, reason="GDPR")
    without = await browser.submit(form, status=400, typed=letter.id[:6])

    assert f"type the first 6 characters of its id: {letter.id[:6]}" in untyped.text
    assert "requires a reason" in without.text
    assert await actions(context, letter) == []


async def test_a_purged_letter_says_who_purged_it_and_why(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    letter = await kept(guarded)
    await guarded.office.letters.purge([letter.id], By("oncall", "GDPR request"))
    reader, limited = await signed_in(Role.READER), await signed_in(Role.READER, "orders", name="l")

    page = await reader.get(f"/letters/{letter.id}", status=410)
    hidden = await limited.get(f"/letters/{letter.id}", status=404)

    assert "Purged now by oncall: GDPR request." in page.main.text
    assert "GDPR" not in hidden.text


async def test_letters_that_never_were_are_not_found(browser: Browser) -> None:
    page = await browser.get(f"/letters/{'a' * 24}", status=404)

    assert "there is no letter" in page.text.lower()


async def test_limited_callers_find_letters_of_their_mailboxes_only(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    letter = await kept(guarded)
    limited = await signed_in(Role.ADMIN, "mails")

    for path in ("", "/older", "/newer", "/compare", "/edit", "/repro", "/close/dialog"):
        await limited.get(f"/letters/{letter.id}{path}", status=404)
    csrf = await limited.csrf()
    await limited.post(f"/letters/{letter.id}/notes", status=404, csrf=csrf, text="x")
    for path in ("close", "contents/revealed"):
        await limited.post(f"/letters/{letter.id}/{path}", status=404, csrf=csrf)
    assert await actions(guarded, letter) == []


async def test_readers_see_what_operators_could_do(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    letter = await kept(guarded)
    reader = await signed_in(Role.READER)

    page = await reader.get(f"/letters/{letter.id}")

    refused = [one.text for one in page.main.all("button", aria_disabled="true")]
    assert {"Plan replay…", "Edit", "Review", "Discard…", "Close…", "Reveal"} <= set(refused)
    assert "Purge" not in page.main.text
    assert [form.method for form in page.forms if f"/letters/{letter.id}" in form.action] == []


@pytest.mark.parametrize("path", ["close", "notes", "purge", "contents/revealed", "edit"])
async def test_readers_cannot_act(guarded: ServerContext, signed_in: SignedIn, path: str) -> None:
    letter = await kept(guarded)
    reader = await signed_in(Role.READER)

    await reader.post(f"/letters/{letter.id}/{path}", status=403, csrf=await reader.csrf())

    assert await actions(guarded, letter) == []


async def test_acts_need_the_proof_of_the_page(guarded: ServerContext, signed_in: SignedIn) -> None:
    letter = await kept(guarded)
    operator = await signed_in(Role.OPERATOR)

    await operator.post(f"/letters/{letter.id}/close", status=403)

    assert await actions(guarded, letter) == []


async def test_a_letter_that_waits_for_an_outcome_is_closed_only_knowingly(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    await context.store.move(
        Move(ids=(letter.id,), old=frozenset({State.PENDING}), new=State.REPLAYING), By("x")
    )
    form = (await browser.get(f"/letters/{letter.id}/close/dialog")).form(button="Close")

    assert "its outcome is not known yet" in form.element.text
    await browser.submit(form, status=409)
    await browser.submit(form, unconfirmed="true")

    assert (await context.office.letters.head(letter.id)).state is State.CLOSED


async def test_notes_are_added_without_scripts(browser: Browser, context: ServerContext) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}")

    said = await browser.submit(page.form(button="Add the note"), text="asked <the> bank")
    empty = await browser.submit(page.form(button="Add the note"), status=400, text=" ")

    assert "Note added" in said.find(id="notice").text
    assert "local noted: asked <the> bank" in section(said, "story").text
    assert "the note is empty" in empty.text.lower()


async def test_an_edited_letter_shows_what_was_changed(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    changes = Changes(body=b'{"id": "o-17", "amount": 500, "password": "hunter2"}')
    await context.office.letters.edit(letter.id, changes, By("ben", "amount was text"))

    page = await browser.get(f"/letters/{letter.id}")

    changed = page.find(class_="edited")
    assert "Edited since it died: body" in changed.text
    assert [one.text for one in changed.all("del")] == ['removed: - "amount": "500",']
    assert [one.text for one in changed.all("ins")] == ['added: + "amount": 500,']
    before = await browser.get(page.link("As it died"))
    assert '"amount": "500"' in section(before, "body").text
    assert "hunter2" not in page.html + before.html


async def test_one_goes_through_the_letters_of_a_search(
    browser: Browser, context: ServerContext
) -> None:
    now = context.clock.now()
    letters = [
        make_letter(n, now=now, died=timedelta(minutes=n * 7), source="orders" if n != 3 else "x")
        for n in range(1, 6)
    ]
    await context.store.keep(letters)
    query = "?in=source%3Aorders"

    page = await browser.get(f"/letters/{letters[1].id}{query}")
    older = await browser.get(page.link("older ]"))
    assert letters[3].id in older.main.text
    newer = await browser.get(older.link("newer ["))
    assert letters[1].id in newer.main.text
    first = await browser.get(newer.link("newer ["))
    assert letters[0].id in first.main.text
    end = await browser.get(first.link("newer ["))

    assert "This is the newest letter of the search." in end.find(id="notice").text
    assert end.link("back to the search") == "/letters?q=source%3Aorders"


async def test_neighbours_that_died_in_the_same_instant_are_not_left_out(
    browser: Browser, context: ServerContext
) -> None:
    letters = make_letters(4, now=context.clock.now(), died=timedelta(minutes=3))
    await context.store.keep(letters)
    heads = (await context.store.find(limit=10)).heads

    seen = [heads[0].id]
    for _ in range(3):
        await browser.get(f"/letters/{seen[-1]}/older")
        seen.append(browser.path.split("/")[2].partition("?")[0])
    back = [seen[-1]]
    for _ in range(3):
        await browser.get(f"/letters/{back[-1]}/newer")
        back.append(browser.path.split("/")[2].partition("?")[0])

    assert seen == [head.id for head in heads]
    assert back == seen[::-1]


async def test_readers_cannot_search_what_is_masked_by_neighbours(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    letter = await kept(guarded)
    reader = await signed_in(Role.READER)

    page = await reader.get(f"/letters/{letter.id}/older?in=body.password%3Ahunter2", status=400)

    assert "masked" in page.text


async def test_long_and_wrong_searches_are_refused(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)

    await browser.get(f"/letters/{letter.id}?in={'x' * (LONGEST + 1)}", status=400)
    odd = await browser.get(f"/letters/{letter.id}?in={'%E2%82%AC' * 500}")
    assert odd.html.count("%E2%82%AC") == 0, "a long search would be in every link"
    await browser.get(f"/letters/{letter.id}/older?in=nosuchfield%3Ax", status=400)
    await browser.get(f"/letters/{letter.id}?fom=raw", status=400)


async def test_a_failing_test_is_one_form_away(browser: Browser, context: ServerContext) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}")

    form = (await browser.get(page.link("Failing test…"))).form(button="Download")
    answer = await browser.client.get(form.action, params={"app": "shop:app"})

    assert form.action == f"/api/v1/letters/{letter.id}/repro"
    assert answer.headers["content-type"] == "application/zip"


class TestInMemory:
    """The same pages over another store."""

    @pytest.fixture
    def url(self) -> str:
        return "memory://"

    async def test_a_letter_its_neighbours_and_its_group(
        self, browser: Browser, context: ServerContext
    ) -> None:
        letters = make_letters(3, now=context.clock.now())
        await context.store.keep(letters)

        page = await browser.get(f"/letters/{letters[1].id}")
        assert "2 other letters like it" in page.main.text
        older = await browser.get(page.link("older ]"))
        assert letters[2].id in older.main.text
        await browser.get(f"/letters/{letters[1].id}/newer")
        assert browser.path == f"/letters/{letters[0].id}"
        compared = await browser.get(f"/letters/{letters[0].id}/compare")
        assert letters[1].id[:10] in compared.h1
        await context.office.letters.purge([letters[0].id], By("anna", "GDPR"))
        gone = await browser.get(f"/letters/{letters[0].id}", status=410)
        assert "by anna: GDPR" in gone.main.text
