"""The audit in the console: acts, filters, pages, seals, and who sees what."""

import re
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest

from deadletter.core.access import Role
from deadletter.core.letter import AuditEntry, By
from deadletter.office.audit import runs_of
from deadletter.server.acting.office_views import LatestAudit
from deadletter.server.console.audit.page import Asked, audit_page
from deadletter.server.console.links import short_name, target_path
from deadletter.testing.fakes import START
from server.console.overview_rig import Office, fill, opened, text_of

ANNA = By("anna", "the bank was down")


async def acted(office: Office) -> list[str]:
    """Note all letters of orders, and one of mails; return the ids of orders."""
    await fill(office.context)
    letters = office.context.office.letters
    ids = [head.id for head in (await letters.search("source:orders")).heads]
    await office.context.store.note(ids, "seen", ANNA)
    mails = [head.id for head in (await letters.search("source:mails")).heads]
    await office.context.store.note(mails, "<i>odd</i> \u202e", By("bob"))
    return ids


def test_acts_in_a_row_are_one_run() -> None:
    entries = [
        AuditEntry(
            seq=9 - number,
            at=START - timedelta(seconds=number * 40),
            actor="bob" if number == 4 else "anna",
            action="note",
            target=f"t-{number}",
            detail="seen",
        )
        for number in range(6)
    ]

    runs = runs_of(entries)

    assert [len(run.entries) for run in runs] == [4, 1, 1]
    assert (runs[0].entry.seq, runs[0].targets) == (9, 4)
    assert [entry for run in runs for entry in run.entries] == entries
    assert len(runs_of([entries[0], entries[3]])) == 2  # two minutes lie between them


def test_targets_lead_to_their_pages() -> None:
    letter, replay = "f7ogcga74obp3tvcxhydnrfw", "01a1e974-0000-7000-8000-000000000001"

    assert target_path("move", letter) == f"/letters/{letter}"
    assert target_path("group", "1-1fdf083c0a11bb22") == "/groups/1-1fdf083c0a11bb22"
    assert target_path("campaign", replay) == f"/replays/{replay}"
    assert target_path("create", "a/b") == "/queues/a%2Fb"
    assert not target_path("sign-in", "token:abc")
    assert (short_name(letter), short_name(replay)) == ("f7ogcga74o", "01a1e974")


async def test_acts_are_listed_newest_first_with_links(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await acted(office)
        shown = await office.get("/audit")

    text = text_of(shown)
    assert text.index("bob") < text.index("anna")
    assert "6 letters" in text
    assert "the bank was down" in text
    assert re.search(r'href="/letters/[a-z2-7]{24}"', shown.text)
    assert "<i>odd" not in shown.text
    assert "\u202e" not in shown.text


@pytest.mark.parametrize(
    ("query", "seen", "unseen"),
    [
        ("actor=bob", "bob", "anna"),
        ("action=note&since=1h", "anna", "No entry"),
        ("action=purge", "No entry matches.", "anna"),
        ("actor=nobody", "No entry matches.", "bob"),
        ("since=soon", "is not a time", "anna"),
    ],
)
async def test_filters_narrow_what_is_shown(
    tmp_path: Path, query: str, seen: str, unseen: str
) -> None:
    async with opened(tmp_path) as office:
        await acted(office)
        rows = await office.get(f"/audit?{query}")

    assert rows.status_code == 200
    text = text_of(rows)
    assert seen in text
    assert unseen not in text


async def test_one_target_is_followed(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        ids = await acted(office)
        text = await office.text(f"/audit?target={ids[0]}")

    assert "anna" in text
    assert "bob" not in text
    assert f"dlq audit {ids[0]}" in text


async def test_pages_follow_each_other_without_gaps(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        ids = await acted(office)
        for number in range(70):
            await office.context.store.note(ids[:1], f"note {number}", By(f"p-{number % 2}"))
        path, seen = "/audit", []
        while path:
            shown = (await office.get(path)).text
            seen += re.findall(r"note \d+", shown)
            older = re.search(r'href="([^"]+)" rel="next"', shown)
            path = unescape(older[1]) if older else ""

    assert seen == [f"note {number}" for number in reversed(range(70))]


async def test_the_seals_of_what_is_shown_are_checked(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await acted(office)
        whole = await office.text("/audit")
        some = await office.text("/audit?actor=bob")
        found = tuple(await office.context.office.latest_audit(limit=100))
        forged = found[0].__class__(
            **{
                **{name: getattr(found[0], name) for name in found[0].__struct_fields__},
                "actor": "mallory",
            }
        )
        page = audit_page(
            office.context, Asked(), LatestAudit(entries=(forged, *found[1:])), is_limited=False
        )
        gap = audit_page(
            office.context, Asked(), LatestAudit(entries=(found[0], *found[2:])), is_limited=False
        )

    assert "follow each other unbroken, and their seals match." in whole
    assert "Other entries were not checked just now." not in whole
    assert "The seal of this entry matches. Other entries were not checked" in some
    assert page.seals is not None
    assert gap.seals is not None
    assert page.seals.broken == (f"audit entry {found[0].seq} is not as it was written",)
    assert f"audit entry {found[1].seq} is missing" in gap.seals.broken[0]


async def test_newer_acts_are_counted_and_not_inserted(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await acted(office)
        newest = (await office.context.office.latest_audit(limit=1))[0].seq
        path = f"/audit?part=newer&newest={newest}"
        before = await office.get(path, part=True)
        again = await office.get(path, part=True, tag=before.headers["hx-ptag"])
        await office.context.store.record("export", "all", ANNA)
        after = await office.get(path, part=True)

    assert "show" not in before.text
    assert again.status_code == 304
    assert "1 newer entry · show" in text_of(after)


async def test_limited_tokens_see_acts_on_their_mailboxes(tmp_path: Path) -> None:
    async with opened(tmp_path, guarded=True) as office:
        await acted(office)
        text = await office.text("/audit", Role.READER, "mails")
        foreign = await office.text("/audit", Role.READER, "returns")

    assert "bob" in text
    assert "anna" not in text
    assert "You see acts on your mailboxes" in text
    assert "bob" not in foreign


async def test_an_empty_audit_says_what_it_is_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        text = await office.text("/audit")

    assert "Nobody has done anything yet." in text
    assert "seals match" not in text


async def test_strangers_and_unknown_parameters_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, guarded=True) as office:
        await acted(office)
        assert "Sign in" in await office.text("/audit")
        assert (await office.get("/audit?befor=3", Role.READER)).status_code == 400
