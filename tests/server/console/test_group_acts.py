"""Acts on groups: dialogs, forms with and without scripts, notices, undo, and who may."""

from datetime import timedelta
from typing import Any

import pytest

from deadletter.core.access import Role
from deadletter.core.letter import GroupStatus
from deadletter.server.console.groups.act_dialogs import end_of_snooze, next_morning
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock
from html_pages import Page
from office.making import NOW
from server.console.conftest import Browser, SignedIn
from server.console.groups_rig import HOSTILE, group, keep, rows, stand, standing


def notice(page: Page) -> str:
    """Return what the notice of a page says."""
    return page.find("div", class_="notice").find("p").text


async def undo(browser: Browser, page: Page) -> Page:
    """Press Undo on the notice of a page."""
    return await browser.submit(page.form(button="Undo"))


async def test_several_groups_are_snoozed_without_scripts_and_woken_again(
    browser: Browser, context: ServerContext
) -> None:
    for name in ("2-a", "2-b", "2-c"):
        await keep(context.store, name)
    page = await browser.get("/groups")

    bar = page.form(action="/groups/dialog")
    dialog = await browser.submit(bar, act="snooze", id=["2-a", "2-b"])
    assert dialog.h1 == dialog.find(id="dialog-title").text == "Snooze 2 groups"
    done = await browser.submit(
        dialog.form(button="Snooze 2 groups"), span="1d", reason="known", back="/groups?sort=latest"
    )

    assert browser.path == "/groups?sort=latest"
    assert notice(done) == "2 groups are snoozed until 2030-01-02 12:00 UTC."
    assert rows(done) == ["2-c"]
    kept = await standing(context.store, "2-a")
    assert (kept.status, kept.note) == (GroupStatus.SNOOZED, "known")
    assert kept.until == NOW + timedelta(days=1)

    back = await undo(browser, done)

    assert notice(back) == (
        "Undone: 2 groups are ongoing, because they were new or regressed, which follows from"
        " deaths alone."
    )
    kept = await standing(context.store, "2-a")
    assert (kept.status, kept.note, kept.until) == (GroupStatus.ONGOING, "", None)
    acts = [entry.detail for entry in await context.store.audit(target="2-a")]
    assert acts == ["new to snoozed, until 2030-01-02 12:00 UTC", "snoozed to ongoing"]


async def test_undo_gives_back_a_standing_as_it_was(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a")
    until = NOW + timedelta(hours=5)
    await stand(context.store, "2-a", "snoozed", owner="bo", note="later", until=until)

    page = await browser.get("/groups/2-a")
    page = await browser.submit(page.form(action="/groups/2-a/standing", button="Reopen"))
    assert (await standing(context.store, "2-a")).status is GroupStatus.ONGOING
    back = await undo(browser, page)

    assert notice(back) == "Undone: 1 group stands as before."
    kept = await standing(context.store, "2-a")
    assert (kept.status, kept.owner, kept.note, kept.until) == ("snoozed", "bo", "later", until)


async def test_what_changed_meanwhile_is_not_undone(
    browser: Browser, context: ServerContext, clock: FakeClock
) -> None:
    await keep(context.store, "2-a")
    page = await browser.get("/groups/2-a")
    page = await browser.submit(page.form(button="Acknowledge"))
    clock.advance(5)
    await stand(context.store, "2-a", "muted")

    back = await undo(browser, page)

    assert notice(back) == "Nothing was undone. 1 group was left alone: it has changed meanwhile."
    assert (await standing(context.store, "2-a")).status is GroupStatus.MUTED
    again = await browser.post(page.form(button="Undo").action, status=409)
    assert "can no longer be undone" in again.text


async def test_one_group_is_acknowledged_and_assigned_at_once(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    await keep(guarded.store, "2-a", error_type="builtins.KeyError")
    ada = await signed_in(Role.OPERATOR, name="ada")

    page = await ada.get("/groups/2-a")
    page = await ada.submit(page.form(button="Acknowledge"))
    assert ada.path == "/groups/2-a"
    assert notice(page) == "KeyError in orders is ongoing."
    page = await ada.submit(page.form(button="Assign to me"))

    assert notice(page) == "KeyError in orders is assigned to ada."
    kept = await standing(guarded.store, "2-a")
    assert (kept.status, kept.owner) == (GroupStatus.ONGOING, "ada")
    entries = await guarded.store.audit(target="2-a")
    assert {entry.actor for entry in entries} == {"ada"}


async def test_assigning_keeps_the_status(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, "2-a")
    await stand(context.store, "2-a", "resolved", version="1.9", note="n")

    dialog = await browser.get("/groups/2-a/dialog?act=assign")
    done = await browser.submit(dialog.form(button="Assign"), owner="bo")

    assert notice(done) == "TimeoutError in orders is assigned to bo."
    kept = await standing(context.store, "2-a")
    assert (kept.status, kept.version, kept.owner) == (GroupStatus.RESOLVED, "1.9", "bo")


async def test_resolving_offers_the_version_and_a_death_in_it_opens_it_again(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", version="1.7")
    await keep(context.store, "2-other", version="1.8")

    dialog = await browser.part("/groups/2-a/dialog?act=resolve")
    form = dialog.form(button="Resolve")
    assert form.values["version"] == ["1.8"]
    assert [one["value"] for one in dialog.all("option")] == ["1.8", "1.7"]
    part = await browser.submit(form, hx=True, reason="made them")

    assert notice(part) == "TimeoutError in orders is resolved in 1.8."
    kept = await standing(context.store, "2-a")
    assert (kept.version, kept.note) == ("1.8", "made them")
    await keep(context.store, "2-a", version="1.7", age=-60)
    assert (await standing(context.store, "2-a")).status is GroupStatus.RESOLVED
    await keep(context.store, "2-a", version="1.8", age=-90)
    assert (await standing(context.store, "2-a")).status is GroupStatus.REGRESSED


async def test_a_dialog_says_how_many_groups_are_gone(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a")

    dialog = await browser.part("/groups/dialog?act=mute&id=2-a&id=2-gone")

    assert dialog.find(id="dialog-title").text == "Mute TimeoutError in orders"
    assert "1 chosen group is no longer here." in dialog.text
    gone = await browser.part("/groups/dialog?act=mute&id=2-gone", status=404)
    assert "no longer here" in gone.text
    none = await browser.part("/groups/dialog?act=mute", status=400)
    assert "Choose at least one group." in none.text
    many = "&".join(f"id={n}" for n in range(501))
    await browser.part(f"/groups/dialog?act=mute&{many}", status=400)


async def test_an_act_says_what_it_left_alone(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, "2-a")

    done = await browser.post("/groups/standing", act="mute", id=["2-a", "2-gone"], hx=True)
    refused = await browser.post("/groups/standing", act="mute", id="2-gone", hx=True, status=409)

    assert notice(done).startswith("TimeoutError in orders is muted. 1 group was left alone: there")
    assert "there is no group '2-gone'" in refused.text.lower()


async def test_wrong_forms_are_refused_and_change_nothing(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a")
    wrong: tuple[dict[str, Any], ...] = (
        {"act": "explode"},
        {"act": "snooze"},
        {"act": "snooze", "span": "until", "until": "2001-01-01T00:00"},
        {"act": "snooze", "span": "until", "until": "soon"},
        {"act": "snooze", "until": "2999-01-01T00:00"},
        {"act": "mute", "odd": "1"},
        {"act": "resolve", "version": "v" * 201},
    )
    for fields in wrong:
        await browser.post("/groups/2-a/standing", status=400, **fields)

    assert (await standing(context.store, "2-a")).status is GroupStatus.NEW
    assert await context.store.audit(target="2-a") == []


async def test_groups_are_merged_and_taken_apart_again(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", 3)
    await keep(context.store, "2-b", 2)
    await keep(context.store, "2-c")

    page = await browser.get("/groups")
    bar = page.form(action="/groups/dialog")
    dialog = await browser.submit(bar, act="merge", id=["2-c", "2-a", "2-b"])
    form = dialog.form(button="Merge 3 groups")
    assert form.values["into"] == ["2-a"]  # the largest
    done = await browser.submit(form)

    assert browser.path == "/groups/2-a"
    assert notice(done) == "2 groups merged: 3 letters moved to 2-a, and new ones follow."
    assert (await group(context.store, "2-a")).open == 6
    assert "Merged into this group: 2-b" in done.main.text

    # Made-up names are not computed from letters, so these stay; new ones do not follow.
    back = await undo(browser, done)

    assert notice(back) == "Undone: 0 letters moved back."
    assert list(await context.office.groups.rules()) == []
    details = [entry.detail for entry in await context.store.audit(target="2-b")]
    assert details[-1] == "undone: merged to 2-a"


async def test_others_are_merged_into_the_group_of_the_page(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", error_type="builtins.KeyError")
    await keep(context.store, "2-b", error_type="shop.KeyError")
    await keep(context.store, "2-far", error_type="shop.Other", frame="x:y")

    dialog = await browser.get("/groups/2-a/dialog?act=merge")
    offered = [one["value"] for one in dialog.all("input", type="checkbox")]
    nothing = dialog.form(button="Merge into this group")
    await browser.submit(nothing, status=400)
    done = await browser.submit(nothing, others=["2-b"], other="2-f")

    assert offered == ["2-b"]
    assert notice(done).startswith("2 groups merged: 2 letters moved to 2-a")


async def test_groups_of_several_mailboxes_are_not_merged(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a")
    await keep(context.store, "2-b", source="mails")

    dialog = await browser.part("/groups/dialog?act=merge&id=2-a&id=2-b")
    refused = await browser.post("/groups/merge", into="2-a", others="2-b", status=409)

    assert "only groups of one can be merged" in dialog.text
    assert not [form for form in dialog.forms if any(b.startswith("Merge") for b in form.buttons)]
    assert "only groups of one mailbox can be merged" in refused.text


async def test_letters_are_split_off_and_joined_again(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", 2, version="1.7")
    await keep(context.store, "2-a", 3, version="1.8")

    dialog = await browser.get("/groups/2-a/dialog?act=split")
    form = dialog.form(button="Split them off")
    await browser.submit(form, query="is:pending", status=400)
    done = await browser.submit(form, query="version:1.8", reason="another cause")

    assert browser.path == "/groups/2-a"
    assert notice(done) == "3 letters moved to a group of their own, and new ones follow."
    assert (await group(context.store, "2-a")).open == 2
    new = done.link("Open the new group")
    assert "Letters split off with version:1.8" in (await browser.get(new)).main.text

    page = await browser.get("/groups/2-a")
    back = await browser.submit(page.form(button="Undo"))

    assert notice(back) == "Undone: 3 letters moved back to 2-a."
    assert (await group(context.store, "2-a")).open == 5


async def test_a_replay_of_chosen_groups_is_planned_by_a_search(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a")
    answer = await browser.client.get(
        "/groups/dialog?act=replay&id=2-a&id=2-b", headers={"hx-request": "true"}
    )
    page = await browser.client.get(
        "/groups/dialog?act=replay&id=2-a", headers={"accept": "text/html"}, follow_redirects=False
    )

    assert answer.headers["hx-redirect"] == "/replays/new?q=group%3A%5B2-a%2C2-b%5D%20is%3Aopen"
    assert page.headers["location"] == "/replays/new?q=group%3A2-a%20is%3Aopen"


async def test_nobody_acts_on_groups_of_others(signed_in: SignedIn, guarded: ServerContext) -> None:
    await keep(guarded.store, "2-ours")
    await keep(guarded.store, "2-theirs", source="mails")
    somebody = await signed_in(Role.OPERATOR, "orders")
    csrf = await somebody.csrf()

    acts: dict[str, dict[str, Any]] = {
        "/groups/2-theirs/standing": {"act": "mute"},
        "/groups/2-ours/merge": {"others": "2-theirs"},
        "/groups/2-theirs/merge": {"others": "2-ours"},
        "/groups/2-theirs/split": {"query": "version:1.8.0"},
        "/groups/2-theirs/undo": {},
    }
    for path, fields in acts.items():
        status = 409 if path.endswith("standing") else 404
        await somebody.post(path, csrf=csrf, status=status, **fields)
    await somebody.get("/groups/2-theirs/dialog?act=mute", status=404)
    mixed = await somebody.post(
        "/groups/standing", csrf=csrf, act="mute", id=["2-ours", "2-theirs"], hx=True
    )

    assert "1 group was left alone" in notice(mixed)
    assert (await standing(guarded.store, "2-theirs")).status is GroupStatus.NEW
    assert (await standing(guarded.store, "2-ours")).status is GroupStatus.MUTED


async def test_readers_and_forms_without_proof_are_refused(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    await keep(guarded.store, "2-a")
    reader = await signed_in(Role.READER)
    operator = await signed_in(Role.OPERATOR)

    csrf = await reader.csrf()
    await reader.post("/groups/2-a/standing", csrf=csrf, act="mute", status=403)
    await reader.get("/groups/2-a/dialog?act=mute", status=403)
    await operator.post("/groups/2-a/standing", act="mute", status=403)

    assert (await standing(guarded.store, "2-a")).status is GroupStatus.NEW


async def test_the_undo_of_one_person_is_not_that_of_another(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    await keep(guarded.store, "2-a")
    ada = await signed_in(Role.OPERATOR, name="ada")
    bo = await signed_in(Role.OPERATOR, name="bo")
    page = await ada.get("/groups/2-a")
    page = await ada.submit(page.form(button="Acknowledge"))

    path = page.form(button="Undo").action
    await bo.post(path, csrf=await bo.csrf(), status=409)

    assert (await standing(guarded.store, "2-a")).status is GroupStatus.ONGOING


async def test_a_form_leads_back_to_our_own_pages_alone(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a")
    for back in (
        "https://evil.example/",
        "//evil.example",
        "/sign-out",
        "/groups/2-a/dialog?act=mute",
    ):
        await browser.post("/groups/2-a/standing", act="acknowledge", back=back)
        assert browser.path == "/groups/2-a"


async def test_hostile_groups_are_shown_as_text_in_dialogs(
    browser: Browser, context: ServerContext
) -> None:
    for name in ("2-a", "2-b"):
        await keep(
            context.store, name, error_type=f"x.{HOSTILE}", error_text=HOSTILE, version=HOSTILE
        )
    await stand(context.store, "2-a", "ongoing", owner=HOSTILE)

    for act in ("acknowledge", "assign", "snooze", "resolve", "mute", "merge", "split"):
        for path in (f"/groups/2-a/dialog?act={act}", f"/groups/dialog?act={act}&id=2-a&id=2-b"):
            if act == "split" and "&id" in path:
                continue
            page = await browser.part(path)
            assert page.all("script") == page.all("img") == [], path
            assert "\u202e" not in page.html


@pytest.mark.parametrize(
    ("span", "until", "end"),
    [
        ("1h", "", NOW + timedelta(hours=1)),
        ("morning", "", NOW + timedelta(hours=21)),
        ("1h", "2030-01-03T08:00", NOW + timedelta(hours=44)),
        ("until", "2030-01-01T15:00+02:00", NOW + timedelta(hours=1)),
    ],
)
def test_a_snooze_ends_when_it_was_said(span: str, until: str, end: object) -> None:
    assert end_of_snooze(span, until, NOW) == end


def test_the_next_morning_may_be_today() -> None:
    assert next_morning(NOW - timedelta(hours=4)) == NOW - timedelta(hours=3)
