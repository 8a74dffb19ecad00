"""Two letters side by side."""

import pytest

from deadletter.core.access import Role
from deadletter.core.letter import By, Changes
from deadletter.server.context import ServerContext
from office.making import make_letter
from server.console.conftest import Browser, SignedIn
from server.console.letter_rig import kept


async def test_facts_and_messages_that_differ_are_shown(
    browser: Browser, context: ServerContext
) -> None:
    one = await kept(context)
    other = make_letter(2, body=b'{"id": "o-17", "amount": 1}', now=context.clock.now())
    await context.store.keep([other])

    page = await browser.get(f"/letters/{one.id}/compare?with={other.id}")

    facts = {row[0]: row[1:] for row in page.table("Facts of both letters that differ")}
    assert facts["message"] == ["m-2", "m-17"]
    assert "mailbox" not in facts
    assert 'removed: - "amount": 1' in [one.text for one in page.main.all("del")]
    assert 'added: + "amount": "500",' in [one.text for one in page.main.all("ins")]
    assert page.link("Swap") == f"/letters/{other.id}/compare?with={one.id}"


async def test_secrets_differ_without_being_shown(browser: Browser, context: ServerContext) -> None:
    one = await kept(context, body=b'{"password": "hunter2"}', headers={"cookie": "c=1"})
    other = make_letter(
        2, body=b'{"password": "letmein"}', headers={"cookie": "c=2"}, now=context.clock.now()
    )
    await context.store.keep([other])

    page = await browser.get(f"/letters/{one.id}/compare?with={other.id}")

    assert "hunter2" not in page.html
    assert "letmein" not in page.html
    assert page.main.text.count("[redacted]") >= 4


async def test_the_next_letter_of_the_group_is_the_default(
    browser: Browser, context: ServerContext
) -> None:
    one = await kept(context)
    alone = await browser.get(f"/letters/{one.id}/compare")
    await context.store.keep([other := make_letter(2, now=context.clock.now())])

    page = await browser.get(f"/letters/{one.id}/compare")

    assert "No other letter of its group is here" in alone.main.text
    assert other.id[:10] in page.h1


async def test_an_edited_letter_is_compared_with_what_died(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    await context.office.letters.edit(letter.id, Changes(key="c-9"), By("ben"))

    page = await browser.get(f"/letters/{letter.id}/compare?with=original")

    assert [one.text for one in page.main.all("del")] == ["removed: - c-7"]
    assert [one.text for one in page.main.all("ins")] == ["added: + c-9"]


async def test_a_letter_that_was_not_edited_says_so(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)

    page = await browser.get(f"/letters/{letter.id}/compare?with=original", status=404)

    assert "was not edited" in page.main.text


@pytest.mark.parametrize("wanted", ["x", "b" * 24, "<script>"])
async def test_a_wrong_id_stands_beside_the_field(
    browser: Browser, context: ServerContext, wanted: str
) -> None:
    letter = await kept(context)

    page = await browser.get(f"/letters/{letter.id}/compare?with={wanted}", status=404)

    field = page.find("input", name="with")
    assert field["value"] == wanted
    assert page.find(id=field["aria-describedby"]).text


async def test_letters_of_other_mailboxes_are_missing_on_either_side(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    one = await kept(guarded)
    other = make_letter(2, source="mails", now=guarded.clock.now())
    await guarded.store.keep([other])
    limited = await signed_in(Role.READER, "orders")

    page = await limited.get(f"/letters/{one.id}/compare?with={other.id}", status=404)
    await limited.get(f"/letters/{other.id}/compare?with={one.id}", status=404)

    assert "mails" not in page.main.text
    assert "there is no letter" in page.main.text


async def test_a_long_difference_is_cut_and_says_so(
    browser: Browser, context: ServerContext
) -> None:
    now = context.clock.now()
    one = await kept(context, body=b"\n".join(b"%d <&>" % n * 30 for n in range(3_000)))
    other = make_letter(2, body=b"\n".join(b"%d <&> other" % n * 30 for n in range(3_000)), now=now)
    await context.store.keep([other])

    page = await browser.get(f"/letters/{one.id}/compare?with={other.id}")

    assert "There is more that differs." in page.main.text
    assert len(page.html.encode()) <= 300_000
