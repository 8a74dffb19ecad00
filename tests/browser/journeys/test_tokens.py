"""Tokens: one is made, shown once, used, and revoked; then neither it nor its session counts."""

import os
import subprocess
import sys

from playwright.async_api import expect

from browser.conftest import Visit, watch_of
from browser.journeys.acting import dialog, heading, notice
from browser.places import Place
from browser.processes import ROOT


def dlq(place: Place, token: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the server, with a token."""
    return subprocess.run(
        [sys.executable, "-m", "deadletter.cli", "--server", place.server.url, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "DLQ_TOKEN": token},
        cwd=place.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_tokens(desk: Place, visit: Visit) -> None:
    await desk.send("mails", [b"nobody is there"])
    desk.work()
    await desk.died(1)
    page = await visit(desk.server, "/access")

    await page.get_by_role("link", name="New token").click()  # 1
    box = dialog(page)
    await box.get_by_label("Name").fill("ci")  # 2
    await box.get_by_role("radio", name="reader").check()
    await box.get_by_role("checkbox", name="mails").check()  # 3
    await box.get_by_label("Ends after").select_option(label="30 days")
    await box.get_by_label("Reason").fill("the nightly build")
    await box.get_by_role("button", name="Create the token").click()  # 4
    shown = dialog(page).locator("code").first
    await expect(shown).to_contain_text("dlq_")
    token = await shown.inner_text()
    await page.keyboard.press("Escape")
    await expect(shown).to_be_visible()  # only its button closes it
    await page.get_by_role("button", name="I have kept it").click()  # 5
    await expect(page.get_by_text(token)).to_have_count(0)

    listed = dlq(desk, token, "list")
    assert listed.returncode == 0, listed.stderr
    assert "nobody is there" in listed.stdout

    theirs = await visit(desk.server, "/letters", token=token)
    await page.goto("/access")
    row = page.get_by_role("row").filter(has_text="ci").first
    await row.get_by_role("link", name="Revoke").click()
    await expect(dialog(page)).to_contain_text("1 session")
    await dialog(page).get_by_label("Reason").fill("it leaked")
    await dialog(page).get_by_role("button", name="Revoke").click()  # 6
    await expect(notice(page)).to_contain_text("evoked")

    assert dlq(desk, token, "list").returncode != 0
    with watch_of(theirs).allowing("401"):
        # Whoever is on a page is asked there; a page that is loaded leads to the door.
        await expect(theirs.get_by_role("heading", name="Sign in to go on")).to_be_visible()
        await theirs.goto("/")
        await expect(heading(theirs)).to_have_text("Sign in")
