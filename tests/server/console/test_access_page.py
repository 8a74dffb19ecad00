"""Access: tokens made, shown once and revoked; sessions ended."""

import re
from datetime import timedelta

import pytest
from msgspec.structs import replace

from deadletter.core.access import Identity, Role, TokenView
from deadletter.core.letter import By
from deadletter.server.auth.keys import Keys
from deadletter.server.console.running.access import mark_of
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock
from office.making import NOW, make_letters
from server.console.conftest import Browser, SignedIn

SECRET = re.compile(r"dlq_[a-z0-9]+_[0-9a-f]{64}")


@pytest.fixture
async def admin(signed_in: SignedIn) -> Browser:
    return await signed_in(Role.ADMIN, name="root")


def keys(context: ServerContext) -> Keys:
    assert context.access is not None
    return Keys(context.access, context.store, context.clock)


async def test_tokens_and_sessions_are_listed(admin: Browser, signed_in: SignedIn) -> None:
    await signed_in(Role.READER, "orders", name="rita")
    page = await admin.get("/access")

    assert page.h1 == "2 tokens, 2 sessions"
    (rita, root) = page.table("Tokens")
    assert rita[0].startswith("rita")
    assert rita[1:3] == ["reader", "orders"]
    assert root[1:3] == ["admin", "all mailboxes"]
    assert (rita[4], rita[6]) == ("within 1 h", "1")
    assert sorted(row[0].split(" ")[0][:4] for row in page.table("Sessions")) == ["rita", "root"]
    assert "this browser" in page.text
    assert not SECRET.search(page.html)


async def test_a_token_is_made_and_shown_once(admin: Browser, guarded: ServerContext) -> None:
    await guarded.store.keep(make_letters(1, now=NOW))
    form = (await admin.get("/tokens/dialog")).form(action="/tokens")
    shown = await admin.submit(
        form, name="ci", role="operator", source=["orders"], lasts="7", reason="pipeline"
    )
    secret = SECRET.search(shown.html)
    again = await admin.get("/access")

    assert secret is not None
    assert f"export DLQ_TOKEN={secret[0]}" in shown.text
    assert shown.link("I have kept it") == "/access"
    assert secret[0] not in again.html
    found = next(one for one in await keys(guarded).list() if one.to.name == "ci")
    assert found.to == Identity(
        name="ci", role=Role.OPERATOR, sources=("orders",), principal=found.to.principal
    )
    assert found.expires_at == NOW + timedelta(days=7)
    act = (await guarded.store.audit(limit=100))[-1]
    assert (act.actor, act.action, act.reason) == ("root", "issue", "pipeline")


async def test_the_dialog_of_scripts_has_the_same_form(admin: Browser) -> None:
    part = await admin.part("/tokens/dialog")
    shown = await admin.submit(part.form(action="/tokens"), hx=True, name="ci")

    assert part.all("dlq-dialog")
    assert not part.all("nav")
    assert shown.all("dlq-once")
    assert SECRET.search(shown.html)


async def test_a_form_makes_one_token_however_often_it_is_sent(
    admin: Browser, guarded: ServerContext
) -> None:
    form = (await admin.get("/tokens/dialog")).form(action="/tokens")
    await admin.submit(form, name="ci")
    again = await admin.submit(form, name="ci", status=409)

    assert "was sent before" in again.text
    assert sum(one.to.name == "ci" for one in await keys(guarded).list()) == 1


async def test_a_wrong_form_comes_back_as_it_was_filled_in(
    admin: Browser, guarded: ServerContext
) -> None:
    form = (await admin.get("/tokens/dialog")).form(action="/tokens")
    wrong = await admin.submit(
        form, name="system", role="admin", others="returns, mails", reason="because", status=400
    )
    again = wrong.form(action="/tokens")

    assert "a name that the office acts under" in wrong.text
    assert again.values["name"] == ["system"]
    assert again.values["role"] == ["admin"]
    assert again.values["others"] == ["returns, mails"]
    assert again.values["reason"] == ["because"]
    # ... and after a correction the same form works.
    await admin.submit(again, name="ci")
    found = next(one for one in await keys(guarded).list() if one.to.name == "ci")
    assert found.to.sources == ("returns", "mails")


async def test_limited_administrators_make_no_tokens_that_see_more(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    limited = await signed_in(Role.ADMIN, "orders", name="boss")
    await guarded.store.keep(make_letters(1, now=NOW, source="mails"))
    page = await limited.get("/tokens/dialog")
    form = page.form(action="/tokens")
    for name, others in (("ci", ""), ("boss/ci", ""), ("boss/ci", "mails")):
        await limited.submit(form, status=400, name=name, others=others)
    await limited.submit(form, name="boss/ci", others="orders")

    assert "mails" not in page.main.text.split()
    assert {one.to.name for one in await keys(guarded).list()} == {"boss", "boss/ci"}


async def test_revoking_says_what_ends_and_needs_a_reason(
    admin: Browser, signed_in: SignedIn, guarded: ServerContext
) -> None:
    rita = await signed_in(Role.READER, name="rita")
    known = next(one for one in await keys(guarded).list() if one.to.name == "rita")
    asked = await admin.get(f"/tokens/{known.id}/revoke/dialog")
    form = asked.form(button="Revoke the token")
    await admin.submit(form, reason=" ", status=400)
    page = await admin.submit(form, reason="left")

    assert "1 session of it ends" in asked.text
    assert admin.path == "/access"
    assert f"Token {known.id} of rita is revoked. 1 session ended with it." in page.text
    await rita.get("/")
    assert rita.path.startswith("/sign-in")
    act = (await guarded.store.audit(limit=100))[-1]
    assert (act.actor, act.action, act.reason) == ("root", "revoke", "left")


async def test_unknown_tokens_and_sessions_are_not_found(admin: Browser) -> None:
    for path in ("/tokens/nosuch/revoke/dialog", "/sessions/nosuch/end/dialog"):
        assert (await admin.get(path, status=404)).h1 == "Not found"
    csrf = await admin.csrf()
    await admin.post("/tokens/nosuch/revoke", csrf=csrf, reason="x", status=404)
    await admin.post("/sessions/nosuch/end", csrf=csrf, status=404)


async def test_an_administrator_ends_the_session_of_somebody(
    admin: Browser, signed_in: SignedIn
) -> None:
    rita = await signed_in(Role.READER, name="rita")
    link = next(one for one in (await admin.get("/access")).links if one.startswith("/sessions/"))
    page = await admin.submit((await admin.get(link)).form(button="End the session"))

    assert "The session of rita has ended, on all servers." in page.text
    await rita.get("/")
    assert rita.path.startswith("/sign-in")


async def test_readers_see_and_end_only_their_own_sessions(
    admin: Browser, signed_in: SignedIn, guarded: ServerContext
) -> None:
    rita = await signed_in(Role.READER, name="rita")
    page = await rita.get("/sessions")
    assert page.h1 == "1 session"
    assert "root" not in page.main.text
    assert guarded.access is not None
    other = next(one for one in await guarded.access.sessions() if one.to.name == "root")

    await rita.get(f"/sessions/{other.hash[:12]}/end/dialog", status=404)
    await rita.post(f"/sessions/{other.hash[:12]}/end", csrf=await rita.csrf(), status=404)

    assert len(await guarded.access.sessions()) == 2


async def test_ones_own_session_is_ended_by_signing_out(admin: Browser) -> None:
    page = await admin.get("/sessions")
    row = page.table("Sessions")[0]
    own = row[0][-12:]
    refused = await admin.post(f"/sessions/{own}/end", csrf=await admin.csrf(), status=409)

    assert "sign out instead" in refused.text
    await admin.submit(page.form(action="/sign-out"))
    assert admin.path == "/sign-in"


async def test_parts_refresh_alone(admin: Browser) -> None:
    for part in ("head", "tokens", "sessions"):
        found = await admin.part(f"/access?part={part}")
        assert not found.all("nav")
        assert admin.last is not None
        tag = admin.last.headers["hx-ptag"]
        await admin.part(f"/access?part={part}", status=304, **{"hx-ptag": tag})


async def test_blocked_addresses_stand_there(admin: Browser, guarded: ServerContext) -> None:
    await guarded.store.record("block", "address:10.0.0.9", By("dlq serve", "too many"))

    assert "address:10.0.0.9" in (await admin.get("/access")).text


async def test_with_access_off_there_is_nothing_to_manage(browser: Browser) -> None:
    page = await browser.get("/access")

    assert page.h1 == "Access is off"
    assert "Access is off: nobody signs in here." in (await browser.get("/sessions")).text
    await browser.get("/tokens/dialog", status=409)


async def test_hostile_names_are_spelled_out(admin: Browser, guarded: ServerContext) -> None:
    assert guarded.access is not None
    (known,) = await guarded.access.tokens()
    odd = "<img src=x onerror=alert(1)>\u202e"
    await guarded.access.add_token(
        replace(known, id="odd", hash="odd", to=replace(known.to, name=odd, principal="odd"))
    )
    page = await admin.get("/access")

    assert "<img src=x" not in page.html
    assert "\u202e" not in page.html
    assert "\\u202e" in page.text


@pytest.mark.parametrize(
    ("made", "used", "ends", "mark"),
    [
        (0, None, None, ""),
        (2, None, None, "never used"),
        (2, 1, None, ""),
        (2, 1, 5, "ends soon"),
        (2, 1, 8, ""),
        (2, None, 0, "expired"),
    ],
)
def test_marks_say_which_tokens_to_look_at(
    made: int, used: int | None, ends: int | None, mark: str
) -> None:
    now = FakeClock(NOW).now()
    token = TokenView(
        id="t",
        name="ci",
        role=Role.READER,
        sources=(),
        created_at=now - timedelta(days=made),
        created_by="root",
        expires_at=None if ends is None else now + timedelta(days=ends),
        last_used_at=None if used is None else now - timedelta(days=used),
    )

    assert mark_of(token, now) == mark
