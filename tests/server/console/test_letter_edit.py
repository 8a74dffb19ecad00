"""Editing a letter: shown before it is saved, lossless, and never over somebody else's edit."""

import json
from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadletter.core.access import Role
from deadletter.core.letter import By, Changes
from deadletter.core.message import Message
from deadletter.server.console.letter.drafts import (
    DraftForm,
    Problems,
    changes_of,
    draft_of,
    is_nothing,
    is_plain,
    on_top,
    typed_draft,
    with_blanks,
)
from deadletter.server.context import ServerContext
from html_pages import Form, Page
from office.making import NOW
from server.console.conftest import Browser, SignedIn
from server.console.letter_rig import BODY, actions, kept, sent

AMOUNT = '{"id": "o-17", "amount": 500, "password": "hunter2"}'


def form_of(page: Page) -> Form:
    return page.form(button="Save")


async def test_the_change_is_shown_before_it_is_saved_without_scripts(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}/edit")
    assert form_of(page).values["body"] == [BODY.decode()]
    assert form_of(page).values["encoding"] == ["json"]

    shown = await browser.submit(form_of(page), body=AMOUNT, step="save", reason="was text")

    assert (await context.office.letters.head(letter.id)).revision == 0, "not seen before"
    assert [one.text for one in shown.all("ins")] == ['added: + "amount": 500,']
    assert [one.text for one in shown.all("del")] == ['removed: - "amount": "500",']

    saved = await browser.submit(form_of(shown), step="save")

    assert browser.path == f"/letters/{letter.id}"
    assert saved.find(id="notice").text.startswith(f"Letter {letter.id[:10]} edited: body.")
    now = await context.office.letters.get(letter.id)
    assert now.message.body == AMOUNT.encode()
    assert now.as_it_died.body == BODY
    entries = await context.store.audit(target=letter.id)
    assert [(entry.action, entry.reason) for entry in entries] == [
        ("reveal", ""),
        ("edit", "was text"),
    ]


async def test_what_was_typed_after_looking_is_shown_again(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}/edit")
    shown = await browser.submit(form_of(page), body=AMOUNT, step="check")

    again = await browser.submit(form_of(shown), body=AMOUNT.replace("500", "700"), step="save")

    assert "700" in next(one.text for one in again.all("ins"))
    assert (await context.office.letters.head(letter.id)).revision == 0


async def test_changes_are_masked_where_they_are_shown(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}/edit")

    shown = await browser.submit(
        form_of(page), body=AMOUNT.replace("hunter2", "hunter3"), step="check"
    )

    assert "hunter" not in shown.find(id="changes").text
    assert "[redacted]" in shown.find(id="changes").text


async def test_scripts_see_the_change_while_it_is_typed(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}/edit")
    form = form_of(page)

    part = await browser.post(form.element["hx-post"], hx=True, **sent(form, body=AMOUNT))
    wrong = await browser.post(form.element["hx-post"], hx=True, **sent(form, body="{"))

    assert part.find(id="changes").all("ins")
    assert "not JSON: line 1, column 2" in wrong.text
    assert await actions(context, letter) == ["reveal"]
    saved = await browser.submit(
        form, body=AMOUNT, step="save", seen=part.find("input", name="seen")["value"]
    )
    assert "edited: body" in saved.find(id="notice").text


async def test_wrong_json_is_told_beside_the_field_and_kept(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}/edit")

    said = await browser.submit(form_of(page), status=400, body='{"a": 1,\n "b" 2}', step="save")

    area = said.find("textarea", name="body")
    assert area["aria-invalid"] == "true"
    assert "line 2, column 6" in said.find(id=area["aria-describedby"]).text
    assert form_of(said).values["body"] == ['{"a": 1,\n "b" 2}']
    as_text = await browser.submit(form_of(said), encoding="text", step="check")
    assert as_text.find("input", name="seen")["value"]


async def test_json_is_laid_out_on_request_and_shown_as_such(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context, body=b'{"a":1.0,"b":[1e400,2]}')
    page = await browser.get(f"/letters/{letter.id}/edit")

    laid_out = await browser.submit(form_of(page), step="lay-out")
    wrong = await browser.submit(form_of(page), body="{", step="lay-out", status=400)

    text = '{\n  "a": 1.0,\n  "b": [\n    1e400,\n    2\n  ]\n}'
    assert form_of(laid_out).values["body"] == [text]
    assert laid_out.all("ins")
    assert form_of(wrong).values["body"] == ["{"]
    assert (await context.office.letters.head(letter.id)).revision == 0


async def test_an_edit_of_somebody_else_is_not_overwritten(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}/edit")
    shown = await browser.submit(form_of(page), body=AMOUNT, step="check")
    theirs = Changes(key="c-8")
    await context.office.letters.edit(letter.id, theirs, By("backend", "wrong customer"))

    told = await browser.submit(form_of(shown), step="save", status=412)

    assert "backend edited it (key), because: wrong customer." in told.main.text
    assert form_of(told).values["body"] == [AMOUNT], "what was typed is kept"
    assert form_of(told).values["key"] == ["c-8"], "what was not touched is theirs"
    assert told.link("Take theirs") == f"/letters/{letter.id}/edit"
    on_theirs = await browser.submit(form_of(told), step="save")
    assert "edited: body" in on_theirs.find(id="notice").text
    now = await context.office.letters.get(letter.id)
    assert (now.message.body, now.message.key) == (AMOUNT.encode(), "c-8")


async def test_two_edits_at_once_save_one(browser: Browser, context: ServerContext) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}/edit")
    mine = await browser.submit(form_of(page), body=AMOUNT, step="check")
    yours = await browser.submit(form_of(page), body=AMOUNT.replace("500", "1"), step="check")

    await browser.submit(form_of(mine), step="save")
    await browser.submit(form_of(yours), step="save", status=412)

    assert (await context.office.letters.get(letter.id)).message.body == AMOUNT.encode()


async def test_headers_are_added_changed_and_removed(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(
        context, headers={"a": "1", "b": b"\xff", "dlq-max-attempts": "3", "c": "3"}
    )
    page = await browser.get(f"/letters/{letter.id}/edit")
    values = form_of(page).values
    assert values["header_name"] == ["a", "b", "c", "", ""]
    assert values["header_value"][1] == b64encode(b"\xff").decode()

    shown = await browser.submit(
        form_of(page),
        step="check",
        header_name=["a", "b", "", "new", ""],
        header_value=["2", values["header_value"][1], "", "x", ""],
    )
    await browser.submit(form_of(shown), step="save")

    now = await context.office.letters.get(letter.id)
    assert now.message.headers == (
        ("a", b"2"),
        ("b", b"\xff"),
        ("dlq-max-attempts", b"3"),
        ("new", b"x"),
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"header_name": ["dlq-found"], "header_value": ["x"]}, "reserved"),
        ({"header_name": [""], "header_value": ["x"]}, "has no name"),
        ({"header_name": ["a"], "header_value": ["%"], "header_form": ["base64"]}, "not base64"),
        ({"header_name": ["a\u202eb"], "header_value": ["x"]}, "cannot be shown"),
        ({"key": "a\u202eb"}, "cannot show"),
        ({"key": "k" * 9_000}, "9,000 bytes"),
        ({"encoding": "base64", "body": "%%%"}, "not base64"),
    ],
)
async def test_invalid_fields_are_explained(
    browser: Browser, context: ServerContext, fields: dict[str, Any], said: str
) -> None:
    letter = await kept(context, headers={})
    page = await browser.get(f"/letters/{letter.id}/edit")
    empty: dict[str, Any] = {
        "header_was": ["-1"],
        "header_name": [""],
        "header_value": [""],
        "header_form": ["text"],
    }

    told = await browser.submit(form_of(page), status=400, step="save", **{**empty, **fields})

    assert said in told.main.text
    assert (await context.office.letters.head(letter.id)).revision == 0


@pytest.mark.parametrize("state", ["closed", "discarded"])
async def test_letters_that_are_not_open_say_why_not(
    browser: Browser, context: ServerContext, state: str
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}/edit")
    act = context.office.letters.close if state == "closed" else context.office.letters.discard
    await act([letter.id], By("ben"))

    later = await browser.submit(form_of(page), body=AMOUNT, step="save", status=409)
    fresh = await browser.get(f"/letters/{letter.id}/edit")

    for told in (later, fresh):
        assert f"This letter is {state}: only open letters can be edited." in told.main.text
        assert "hunter2" not in told.html
    assert await actions(context, letter) == ["reveal", "move"]


async def test_the_form_shows_secrets_to_operators_on_the_record_only(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    letter = await kept(guarded)
    reader, operator = await signed_in(Role.READER), await signed_in(Role.OPERATOR)

    await reader.get(f"/letters/{letter.id}/edit", status=403)
    assert await actions(guarded, letter) == []
    page = await operator.get(f"/letters/{letter.id}/edit")

    assert "hunter2" in page.html
    assert await actions(guarded, letter) == ["reveal"]
    assert operator.last is not None
    assert "content-encoding" not in operator.last.headers


async def test_other_sites_cannot_make_the_audit_say_that_somebody_looked(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    letter = await kept(guarded)
    operator = await signed_in(Role.OPERATOR)

    answer = await operator.client.get(
        f"/letters/{letter.id}/edit",
        headers={"accept": "text/html", "sec-fetch-site": "cross-site"},
    )

    assert answer.status_code == 403
    assert await actions(guarded, letter) == []


async def test_saving_leads_to_the_replay_if_that_is_asked(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}/edit")
    shown = await browser.submit(form_of(page), body=AMOUNT, step="check")

    form = form_of(shown)
    answer = await browser.client.post(
        form.action, data={**form.values, "step": "plan"}, follow_redirects=False
    )

    assert answer.status_code == 303
    assert answer.headers["location"] == f"/replays/new?q=id%3A{letter.id}"


async def test_a_body_that_is_too_large_stays_as_it_is(
    browser: Browser, context: ServerContext
) -> None:
    body = json.dumps(["x" * 100] * 5_000).encode()
    letter = await kept(context, body=body)
    page = await browser.get(f"/letters/{letter.id}/edit")
    assert form_of(page).values["encoding"] == ["keep"]

    shown = await browser.submit(form_of(page), key="c-9", step="check")
    await browser.submit(form_of(shown), step="save")

    now = await context.office.letters.get(letter.id)
    assert (now.message.body, now.message.key) == (body, "c-9")


def message(body: bytes, *, headers: tuple[tuple[str, bytes], ...] = (), **more: str) -> Message:
    return Message(id="m", body=body, sent_at=NOW, headers=headers, **more)  # type: ignore[arg-type]


def as_sent(one: Message, **changed: str) -> DraftForm:
    """Return what a browser sends: line breaks of fields are CR LF."""
    draft = with_blanks(draft_of(one))
    fields = {
        "body": draft.body,
        "encoding": draft.form,
        "content_type": draft.content_type,
        "key": draft.key,
        **changed,
    }
    return DraftForm(
        revision=0,
        **{name: text.replace("\n", "\r\n") for name, text in fields.items()},
        header_was=tuple(str(one.was) for one in draft.headers),
        header_name=tuple(one.name for one in draft.headers),
        header_value=tuple(one.value for one in draft.headers),
        header_form=tuple(one.form for one in draft.headers),
        base=draft.base,
    )


texts = st.text(st.characters(codec="utf-8"), max_size=40)
bodies = (
    st.binary(max_size=60) | texts.map(str.encode) | texts.map(lambda t: json.dumps(t).encode())
)
odd = st.text(max_size=20)


@given(
    bodies
    | st.sampled_from([b"a\r\nb", b"a\rb", b"\n\na", b"\t{\n\t1}", b"[1,\t2]", b"\xef\xbb\xbf{}"]),
    st.lists(st.tuples(odd, st.binary(max_size=20)), max_size=4),
    odd | st.none(),
)
@settings(max_examples=300, deadline=None)
def test_a_form_that_nobody_touched_changes_nothing(
    body: bytes, headers: list[tuple[str, bytes]], key: str | None
) -> None:
    one = Message(id="m", body=body, sent_at=NOW, headers=tuple(headers), key=key)

    typed = typed_draft(as_sent(one), one)

    assert is_nothing(changes_of(typed, one))


@given(bodies)
@settings(max_examples=300, deadline=None)
def test_what_a_form_shows_is_what_is_there(body: bytes) -> None:
    draft = draft_of(message(body))

    assert is_plain(draft.body)
    if draft.form == "base64":
        assert b64decode(draft.body) == body
    elif draft.form == "json":
        assert json.loads(draft.body) == json.loads(body)
    else:
        assert draft.body.encode() == body.replace(b"\r\n", b"\n")


@given(texts.filter(lambda text: "\r" not in text))
@settings(max_examples=300, deadline=None)
def test_what_is_typed_is_what_is_saved(text: str) -> None:
    one = message(b"before")

    typed = typed_draft(as_sent(one, body=text, encoding="text"), one)
    changes = changes_of(typed, one)

    assert is_plain(typed.body), "a page can show it again"
    assert changes.made_to(one).body == text.encode()


def test_line_breaks_stay_as_they_are_in_the_letter() -> None:
    windows, unix = message(b"a\r\nb\r\n"), message(b"a\nb\n")

    for one, end in ((windows, b"\r\n"), (unix, b"\n")):
        typed = typed_draft(as_sent(one, body="a\nc\n"), one)
        assert changes_of(typed, one).body == b"a" + end + b"c" + end


def test_mixed_line_breaks_are_edited_as_base64() -> None:
    assert draft_of(message(b"a\r\nb\nc")).form == "base64"
    assert draft_of(message(b"a\rb")).form == "base64"


def test_odd_characters_of_json_are_escaped_and_those_of_text_are_base64() -> None:
    as_json = draft_of(message('{"a":\t"x\u202ey"}'.encode()))
    as_text = draft_of(message("x\u202ey".encode()))

    assert (as_json.form, as_json.body) == ("json", '{"a":\t"x\\u202ey"}')
    assert as_text.form == "base64"


def test_odd_characters_stay_as_they_are_when_something_else_is_edited() -> None:
    body = '{"a": 1, "b": "x\u202ey\U000e0041", "c": "\\u200b"}'.encode()
    one = message(body)
    shown = draft_of(one).body
    new = r'"\\u202e"'  # a backslash and five characters

    typed = typed_draft(as_sent(one, body=shown.replace("1", new, 1)), one)

    assert changes_of(typed, one).body == body.replace(b"1", new.encode(), 1)


def test_untouched_fields_are_those_of_the_other_edit() -> None:
    before, now = message(b"old", key="k"), message(b"theirs", key="k")
    form = as_sent(before, key="mine")

    typed = on_top(typed_draft(form, now), form.base, draft_of(now))

    assert (typed.body, typed.key) == ("theirs", "mine")
    assert changes_of(typed, now) == Changes(key="mine")


def test_headers_that_others_changed_are_not_mixed_up() -> None:
    before = message(b"", headers=(("a", b"1"), ("b", b"2")))
    now = message(b"", headers=(("b", b"2"), ("c", b"3")))
    form = as_sent(before)
    form = DraftForm(
        revision=0,
        header_was=("0", "1"),
        header_name=("a", "b"),
        header_value=("9", "2"),
        header_form=("text", "text"),
        base=form.base,
    )

    typed = on_top(typed_draft(form, now), form.base, draft_of(now))

    assert changes_of(typed, now).made_to(now).headers == (("b", b"2"), ("a", b"9"))


def test_deep_json_is_not_read_by_recursion() -> None:
    body = b"[" * 100_000 + b"]" * 100_000
    one = message(body[:50_000] + body[-50_000:], content_type="application/json")

    draft = draft_of(one)

    assert draft.form in {"text", "keep"}
    with pytest.raises(Problems, match="nested too deeply"):
        changes_of(typed_draft(as_sent(one, body="[" * 90_000, encoding="json"), one), one)
