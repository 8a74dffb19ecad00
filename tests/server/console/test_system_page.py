"""The system: health, checks, verify, the retention, alerts, settings."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from deadletter.core.access import Role
from deadletter.core.alerts import Alerts, AlertTarget, TargetKind
from deadletter.core.letter import State
from deadletter.office.verify import Verified
from deadletter.server.context import ServerContext
from deadletter.settings import Settings
from html_pages import Page
from office.making import NOW, make_letters
from server.console.conftest import Browser, SignedIn


@pytest.fixture
def settings() -> Settings:
    hook = AlertTarget(
        kind=TargetKind.WEBHOOK, to="http://127.0.0.1:9/hook/s3cret", secret="0123456789abcdef"
    )
    return Settings(signing_keys=("a-key-of-this-office-123",), alerts=Alerts(targets=(hook,)))


async def over(browser: Browser, part: str) -> Page:
    """Ask for a part until its run is over."""
    async with asyncio.timeout(20):
        while True:
            page = await browser.part(f"/system?part={part}")
            if not page.all("progress"):
                return page
            await asyncio.sleep(0.01)


async def test_readers_see_the_health_and_no_settings(signed_in: SignedIn) -> None:
    page = await (await signed_in(Role.READER)).get("/system")

    assert page.h1 == "Everything answers"
    assert "The office answers" in page.text
    assert "a-key-of-this-office" not in page.html
    assert "Settings in force" not in page.text
    assert "Retention" not in [one.text for one in page.all("h2")]


async def test_administrators_see_settings_without_secrets(signed_in: SignedIn) -> None:
    page = await (await signed_in(Role.ADMIN)).get("/system")

    assert ["signing_keys", "1 set"] in page.table("Settings that are set")
    assert ["alerts.targets", "1 set"] in page.table("Settings that are set")
    assert ["serve.port", "8418"] in page.table("Settings with their defaults")
    assert "http://127.0.0.1:9" in page.text
    for secret in ("a-key-of-this-office", "s3cret", "0123456789abcdef"):
        assert secret not in page.html


async def test_limited_people_see_less_and_no_names(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    await guarded.store.keep(make_letters(120, now=NOW, source="mails"))
    limited = await signed_in(Role.ADMIN, "orders")
    page = await limited.get("/system")

    assert "your token sees some of them" in page.text
    assert "mails" not in page.main.text.split()
    for part in ("checks", "verify", "retention"):
        await limited.part(f"/system?part={part}", status=403)


async def test_many_open_letters_are_a_warning(browser: Browser, context: ServerContext) -> None:
    await context.store.keep(make_letters(120, now=NOW))
    page = await browser.get("/system")

    assert page.h1 == "It works, and somebody should look"
    assert "orders has 120 open letters." in page.text


async def test_checks_come_as_a_part_and_as_a_page(browser: Browser) -> None:
    part = await browser.part("/system?part=checks")
    page = await browser.get("/system/checks")

    assert "reachable" in part.text
    assert part.find("div", id="checks").text == page.find("div", id="checks").text


async def test_verify_goes_on_in_the_background(browser: Browser, context: ServerContext) -> None:
    await context.store.keep(make_letters(3, now=NOW))
    before = await browser.part("/system?part=verify")
    page = await browser.submit(before.form(action="/verify"))
    after = await over(browser, "verify")

    assert "Not run since this server started" in before.text
    assert "Verify has started" in page.text
    assert "3 letters add up; the audit is unbroken" in after.text
    assert "by local" in after.text


async def test_verify_shows_its_steps_and_findings(
    browser: Browser, context: ServerContext
) -> None:
    go_on = asyncio.Event()

    async def slow(*, on_step: object) -> Verified:
        assert callable(on_step)
        on_step()
        await go_on.wait()
        return Verified(findings=("mailbox <b>x</b>: 1 is missing",), mailboxes=(), letters=0)

    context.office.verify = slow  # type: ignore[method-assign, assignment]
    form = (await browser.part("/system?part=verify")).form(action="/verify")
    await browser.submit(form, hx=True)
    await asyncio.sleep(0)
    running = await browser.part("/system?part=verify")
    refused = await browser.submit(form, hx=True, status=409)
    go_on.set()
    after = await over(browser, "verify")

    assert "Step 2 of 4: deaths" in running.text
    assert running.find("div", id="verify")["hx-trigger"] == "every 1s"
    assert not running.forms
    assert "already in progress" in refused.text
    assert "1 finding" in after.text
    assert "mailbox <b>x</b>: 1 is missing" in after.text


async def test_readers_do_not_start_it(signed_in: SignedIn) -> None:
    reader = await signed_in(Role.READER)
    part = await reader.part("/system?part=verify")

    assert not part.forms
    assert part.find("button", aria_disabled="true").text == "Verify now"
    await reader.post("/verify", csrf=await reader.csrf(), status=403)
    await reader.part("/system?part=retention", status=403)


async def test_the_retention_deletes_what_was_typed(
    browser: Browser, context: ServerContext
) -> None:
    await context.store.keep(
        make_letters(4, now=datetime.now(UTC), died=timedelta(days=365), state=State.CLOSED)
    )
    part = await browser.part("/system?part=retention")
    asked = await browser.get(part.link("Delete 4 letters…"))
    form = asked.form(action="/retention")
    wrong = await browser.submit(form, typed="5", status=400)
    await browser.submit(form, typed="4", reason="full disk")
    after = await over(browser, "retention")

    assert "4 letters are past their time, of 4" in part.text
    assert "Type the number 4" in wrong.text
    assert "0 letters are past their time, of 0" in after.text
    assert "The last run, by local, deleted 4 letters" in after.text


async def test_more_letters_than_were_shown_are_not_deleted(
    browser: Browser, context: ServerContext
) -> None:
    old = make_letters(4, now=datetime.now(UTC), died=timedelta(days=365), state=State.CLOSED)
    await context.store.keep(old[:3])
    form = (await browser.get("/retention/dialog")).form(action="/retention")
    await context.store.keep(old[3:])
    refused = await browser.submit(form, typed="3", status=409)

    assert "4 letters are past their time now, not 3" in refused.text
    assert sum((await context.store.counts())["orders"].values()) == 4


async def test_a_test_of_the_alerts_never_claims_more_than_it_knows(browser: Browser) -> None:
    page = await browser.get("/system")
    part = await browser.submit(page.form(action="/alerts/test"), hx=True)
    whole = await browser.submit(page.form(action="/alerts/test"))

    for found in (part, whole):
        assert "not delivered: 127.0.0.1" in found.text
        assert "s3cret" not in found.html
    assert whole.h1 == "Test of the alerts"
    assert "sent" not in part.text.replace("Send a test", "")
