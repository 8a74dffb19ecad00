"""The door: tokens, one-time codes, failures, and where one is led afterwards."""

from urllib.parse import quote

import pytest
from msgspec.structs import replace

from deadletter.core.access import Role
from deadletter.server.auth.codes import SignInCodes
from deadletter.server.auth.keys import token_hash
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock
from server.conftest import token
from server.console.conftest import Browser, SignedIn


@pytest.fixture
def guarded(guarded: ServerContext, clock: FakeClock) -> ServerContext:
    """A server context that also has one-time codes."""
    return replace(guarded, codes=SignInCodes(clock))


async def test_a_token_signs_in_and_leads_on(stranger: Browser, guarded: ServerContext) -> None:
    shown = await token(guarded, Role.READER, name="rita")
    door = await stranger.get("/system")
    await stranger.submit(door.form(action="/sign-in"), token=f"  {shown}\n")

    assert stranger.path == "/system"
    assert "rita" in (await stranger.get("/")).text


async def test_a_code_signs_in_once_and_for_ten_minutes(
    stranger: Browser, guarded: ServerContext, clock: FakeClock
) -> None:
    assert guarded.codes is not None
    shown = await token(guarded, Role.ADMIN, name="root")
    first, late = (guarded.codes.issue(token_hash(shown)) for _ in range(2))
    form = (await stranger.get("/sign-in")).form(action="/sign-in")
    await stranger.submit(form, token=first)
    assert stranger.path == "/"
    stranger.client.cookies.clear()

    again = await stranger.submit(form, token=first, status=401)
    clock.advance(601)
    over = await stranger.submit(form, token=late, status=401)

    for page in (again, over):
        assert "a code works once" in page.text


async def test_a_revoked_token_takes_its_code_along(
    stranger: Browser, guarded: ServerContext
) -> None:
    assert guarded.codes is not None
    assert guarded.access is not None
    shown = await token(guarded, Role.ADMIN, name="root")
    code = guarded.codes.issue(token_hash(shown))
    (known,) = await guarded.access.tokens()
    await guarded.access.revoke(known.id)
    form = (await stranger.get("/sign-in")).form(action="/sign-in")

    await stranger.submit(form, token=code, status=401)


async def test_too_many_failures_are_a_page_that_says_when(stranger: Browser) -> None:
    form = (await stranger.get("/sign-in?next=/system")).form(action="/sign-in")
    for _ in range(10):
        await stranger.submit(form, token="wrong", status=401)
    page = await stranger.submit(form, token="wrong", status=429)

    assert stranger.last is not None
    assert int(stranger.last.headers["retry-after"]) > 0
    assert "Try again in" in page.text
    assert page.form(action="/sign-in").values["next"] == ["/system"]


async def test_codes_cannot_be_guessed_faster_than_tokens(
    stranger: Browser, guarded: ServerContext
) -> None:
    form = (await stranger.get("/sign-in")).form(action="/sign-in")
    for number in range(10):
        await stranger.submit(form, token=f"{number:032x}", status=401)

    await stranger.submit(form, token="f" * 32, status=429)


@pytest.mark.parametrize("shown", ["", "wrong", "dlq_x_0", "x" * 400, "<script>alert(1)</script>"])
async def test_every_failure_looks_the_same_and_shows_nothing(
    stranger: Browser, shown: str
) -> None:
    form = (await stranger.get("/sign-in")).form(action="/sign-in")
    page = await stranger.submit(form, token=shown, status=401)

    assert "This token or code is not valid." in page.text
    assert page.find("input", id="token").get("value") == ""
    assert "alert(1)" not in page.html
    assert not stranger.client.cookies


@pytest.mark.parametrize(
    "next_",
    [
        *("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"),
        *("/%0d%0aset-cookie:x=1\r\n", "/sign-out", "/api/v1/tokens", "\t//evil.example", "/a b"),
        *("/" + "a" * 1_990 + "é", "/static/x", "http:/evil.example", "///evil.example"),
    ],
)
async def test_one_is_led_to_pages_of_this_server_only(
    stranger: Browser, guarded: ServerContext, next_: str
) -> None:
    shown = await token(guarded, Role.READER, name="rita")
    door = await stranger.get(f"/sign-in?next={quote(next_)}")
    await stranger.submit(door.form(action="/sign-in"), token=shown, next=next_)

    assert stranger.path == "/"
    assert stranger.last is not None
    assert stranger.last.url.host == "dlq.example"


async def test_signing_in_again_ends_the_session_of_before(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    """Somebody who planted a cookie does not have the session of who signs in."""
    rita = await signed_in(Role.READER, name="rita")
    planted = rita.client.cookies["dlq"]
    shown = await token(guarded, Role.ADMIN, name="root")
    await rita.post("/sign-in", token=shown)

    assert rita.client.cookies["dlq"] != planted
    assert guarded.access is not None
    assert [one.to.name for one in await guarded.access.sessions()] == ["root"]


async def test_a_planted_cookie_becomes_nobodys_session(
    stranger: Browser, guarded: ServerContext
) -> None:
    stranger.client.cookies.set("dlq", "0" * 64, domain="dlq.example")
    shown = await token(guarded, Role.READER, name="rita")
    await stranger.post("/sign-in", token=shown)

    assert "0" * 64 not in [one.value for one in stranger.client.cookies.jar]


async def test_signing_out_ends_the_session_on_all_servers(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    rita = await signed_in(Role.READER, name="rita")
    kept = rita.client.cookies["dlq"]
    await rita.submit((await rita.get("/")).form(action="/sign-out"))
    rita.client.cookies.set("dlq", kept, domain="dlq.example")
    await rita.get("/system")

    assert rita.path == "/sign-in?next=%2Fsystem"


async def test_a_session_says_when_it_ends_and_ends_then(
    signed_in: SignedIn, clock: FakeClock
) -> None:
    rita = await signed_in(Role.READER, name="rita")
    page = await rita.get("/")
    clock.advance(12 * 3600)
    part = await rita.part(
        "/?part=headline", status=401, **{"hx-current-url": "http://dlq.example/?a=b"}
    )

    assert "Signed in until" in page.text
    assert "Your session has ended. Nothing was done." in part.text
    assert part.links == ["/sign-in?next=%2F%3Fa%3Db"]


async def test_signing_in_over_a_page_lets_its_forms_go_on(
    signed_in: SignedIn, guarded: ServerContext, clock: FakeClock
) -> None:
    shown = await token(guarded, Role.OPERATOR, name="olga")
    olga = await signed_in(Role.OPERATOR, name="olga")
    page = await olga.get("/")
    clock.advance(12 * 3600)
    await olga.part("/?part=headline", status=401)
    dialog = await olga.part("/sign-in?part=dialog")
    wrong = await olga.submit(dialog.form(action="/sign-in"), hx=True, token="wrong", status=401)
    going_on = await olga.submit(dialog.form(action="/sign-in"), hx=True, token=shown)

    answer = going_on.find("dlq-signed-in")
    assert answer["data-who"] == page.find("dialog", id="door")["data-who"] == "olga operator "
    assert answer["data-ends"] == "2030-01-02T12:00:00Z"
    assert "This token or code is not valid." in wrong.text
    acted = {"csrf": answer["data-csrf"], "reason": "", "owner": "olga"}
    await olga.post("/groups/2-a/owner", hx=True, status=404, **acted)  # 403 without the proof
    elsewhere = await olga.part("/sign-in/again")
    assert elsewhere.find("dlq-signed-in")["data-ends"] == answer["data-ends"]


async def test_the_sign_in_over_a_page_is_for_those_who_have_a_session(
    stranger: Browser, browser: Browser
) -> None:
    assert not (await browser.get("/")).all("dialog", id="door")
    await stranger.part("/sign-in/again", status=401)


async def test_who_is_signed_in_does_not_stand_at_the_door(signed_in: SignedIn) -> None:
    rita = await signed_in(Role.READER, name="rita")
    await rita.get("/sign-in?next=/system")

    assert rita.path == "/system"


async def test_the_door_shows_neither_times_nor_the_office(stranger: Browser) -> None:
    page = await stranger.get("/sign-in")

    assert "this page took" not in page.text
    assert "sqlite" not in page.html


async def test_forms_of_another_kind_are_refused(stranger: Browser) -> None:
    headers = {"origin": "http://dlq.example", "accept": "text/html"}
    answers = [
        await stranger.client.post("/sign-in", json={"token": "x"}, headers=headers),
        await stranger.client.post("/sign-in", files={"token": b"x"}, headers=headers),
    ]

    assert [one.status_code for one in answers] == [415, 415]
