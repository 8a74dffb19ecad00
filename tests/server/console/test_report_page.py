"""The shift report: what came, what was done, what waits; on paper and as text."""

import re
from html import unescape
from pathlib import Path

from deadletter.core.access import Role
from deadletter.core.letter import By
from server.console.overview_rig import Office, fill, opened


async def acted(office: Office) -> None:
    await fill(office.context)
    found = await office.context.office.letters.search("source:orders")
    await office.context.store.note([head.id for head in found.heads], "seen", By("anna"))


async def test_the_report_tells_the_shift(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await acted(office)
        text = await office.text("/report?since=8h")

    assert "letters died 7" in text
    assert "new problems 3" in text
    assert "KeyError 'vat_rate'" in text
    assert "anna note 6" in text
    assert "No replay was planned in this time." in text
    assert "orders has been stopped" in text
    assert "dlq report --since 8h" in text


async def test_the_report_can_be_copied_as_markdown(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await acted(office)
        shown = (await office.get("/report")).text

    (text,) = re.findall(r'<pre[^>]*><bdi translate="no">(.*?)</bdi></pre>', shown, re.DOTALL)
    lines = unescape(text).splitlines()
    assert lines[0].startswith("# Dead letters, ")
    assert "- anna: note, 6 times" in lines
    assert "<b>the bank" not in shown
    assert "<dlq-copy" in shown


async def test_what_happened_before_the_shift_is_left_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await acted(office)
        text = await office.text("/report?since=10m")

    assert "letters died 1" in text
    assert "new problems 1" in text


async def test_a_wrong_beginning_is_said_beside_the_field(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        shown = await office.get("/report?since=yesterday")

    assert shown.status_code == 200
    assert "is not a time" in unescape(shown.text)
    assert 'value="yesterday"' in shown.text


async def test_limited_tokens_get_the_report_of_their_mailboxes(tmp_path: Path) -> None:
    async with opened(tmp_path, guarded=True) as office:
        await acted(office)
        text = await office.text("/report", Role.READER, "mails")
        strangers = await office.text("/report")

    assert "of your mailboxes and your own replays" in text
    assert "letters died 1" in text
    assert "anna" not in text
    assert "orders" not in text
    assert "Sign in" in strangers


async def test_an_office_without_letters_has_a_report(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        text = await office.text("/report")

    assert "Nothing needs somebody." in text
    assert "Nobody did anything in this time." in text
