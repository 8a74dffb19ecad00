"""The row of saved searches over the list of letters, and the forms that change it."""

import pytest

from deadletter.core.access import Role
from deadletter.core.letter import By
from deadletter.office.triage.completion import quoted
from deadletter.server.console.letters.saved_row import SHOWN
from deadletter.server.context import ServerContext
from html_pages import Element, Page
from server.console.conftest import Browser, SignedIn
from server.console.letters_rig import HOSTILE, fields_of, keep
from server.console.test_palette import places
from server.console.test_suggest import texts

ADA = By("ada", principal="ada")


async def save(context: ServerContext, **searches: str) -> None:
    for name, query in searches.items():
        await context.office.searches.save(name.replace("_", " "), query, ADA)


def links(page: Page) -> dict[str, str]:
    """Return the searches of the row, each with its query."""
    row = page.find(id="saved")
    return {one.text: fields_of(one["href"])["q"] for one in row.all("a") if one.get("title")}


def link(page: Page, text: str) -> Element:
    """Return the link with this text."""
    (found,) = (one for one in page.main.all("a") if one.text == text)
    return found


def offers(page: Page, text: str) -> bool:
    return text in page.find(id="saved").text


async def queries(context: ServerContext) -> dict[str, str]:
    return {one.name: one.query for one in await context.office.searches.list()}


async def test_saved_searches_are_links_over_the_list(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 1)
    await save(context, Old="age:>7d", Mails="source:mails OR source:orders")

    page = await browser.get("/letters")

    assert links(page) == {"Mails": "source:mails OR source:orders", "Old": "age:>7d"}
    for query in links(page).values():
        await browser.client.get("/letters", params={"q": query})


async def test_a_search_is_saved_without_scripts(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 1)
    page = await browser.get("/letters?q=error:TimeoutError is:open")
    dialog = await browser.get(link(page, "Save this search…")["href"])

    said = await browser.submit(dialog.form(action="/searches/save"), name="Slow bank")

    assert fields_of(browser.path) == {"q": "error:TimeoutError is:open"}
    assert "Saved as Slow bank." in said.text
    assert link(said, "Slow bank")["aria-current"] == "page"
    assert not offers(said, "Save this search")
    assert await queries(context) == {"Slow bank": "error:TimeoutError is:open"}


async def test_scripts_get_the_dialog_and_the_notice(
    browser: Browser, context: ServerContext
) -> None:
    dialog = await browser.part("/searches/dialog?q=is:open")
    form = dialog.form(action="/searches/save")
    assert form.values["query"] == ["is:open"]

    said = await browser.submit(form, hx=True, name="Open")

    assert said.text.strip().startswith("Saved as Open.")
    part = await browser.part("/letters?q=is:open&part=saved")
    assert links(part) == {"Open": "is:open"}


async def test_a_deleted_search_comes_back_by_undo(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 1)
    await save(context, Old="age:>7d")
    before = await context.store.searches()
    page = await browser.get("/letters?q=age:>7d")

    said = await browser.submit(page.form(action="/searches/delete"))

    assert "Deleted the saved search Old." in said.text
    assert await queries(context) == {}
    back = await browser.submit(said.form(button="Undo"))
    assert "The search Old is saved again." in back.text
    assert await context.store.searches() == before
    actions = [one.action for one in await context.store.audit(target="search:Old")]
    assert actions == ["save-search", "delete-search", "save-search"]


async def test_a_name_in_use_and_a_wrong_search_are_refused_with_words(
    browser: Browser, context: ServerContext
) -> None:
    await save(context, Old="age:>7d")

    async def refused(status: int, **fields: str) -> str:
        return (await browser.post("/searches/save", status=status, hx=True, **fields)).text

    assert "exists with another query" in await refused(409, name="Old", query="is:open")
    wrong = await refused(400, name="New", query=" is:open is:pendng")
    assert wrong.strip().startswith("At character 12: is:pendng is not valid; use one of: pending")
    assert "1 to 80 printable characters" in await refused(400, name=" ", query="is:open")
    assert (
        "no saved search" in (await browser.post("/searches/delete", name="New", status=404)).text
    )
    assert await queries(context) == {"Old": "age:>7d"}

    await browser.post("/searches/save", name="Old", query="is:open", replace="true")
    assert await queries(context) == {"Old": "is:open"}


async def test_many_searches_are_in_a_menu_and_the_current_one_is_not(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 1)
    await save(context, **{f"n_{number:02}": f"attempts:>{number}" for number in range(20)})

    page = await browser.get("/letters?q=attempts:>19")

    assert len(links(page)) == 20
    row = page.find(id="saved").all("ul")[0]
    assert [one.text for one in row.all("a")] == [*(f"n {n:02}" for n in range(SHOWN - 1)), "n 19"]
    assert link(page, "n 19")["aria-current"] == "page"
    assert offers(page, "14 more")


@pytest.mark.parametrize("query", ["", "  ", "is:pendng"])
async def test_what_cannot_be_saved_is_not_offered(
    browser: Browser, context: ServerContext, query: str
) -> None:
    await keep(context.store, 1)
    answer = await browser.client.get("/letters", params={"q": query})

    assert "Save this search" not in answer.text


async def test_each_role_sees_and_does_what_it_may(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    await keep(guarded.store, 1, source="mails")
    await save(guarded, Old="age:>7d", Customer="key:c-7", Secret="body.password:a*")

    reader = await signed_in(Role.READER)
    page = await reader.get("/letters?q=age:>7d")
    assert links(page).keys() == {"Old", "Customer"}
    assert not offers(page, "Delete this search")
    other = (await reader.get("/letters")).find(id="saved").find("button")
    assert other["aria-disabled"] == "true"

    limited = await signed_in(Role.OPERATOR, "mails")
    page = await limited.get("/letters?q=age:>7d")
    assert links(page).keys() == {"Old"}
    assert not offers(page, "Delete this search")
    csrf = await limited.csrf()
    await limited.post("/searches/delete", name="Old", csrf=csrf, status=404)
    await limited.post("/searches/save", name="Mine", query="key:c-9", csrf=csrf)
    assert links(await limited.get("/letters")).keys() == {"Mine", "Old"}

    operator = await signed_in(Role.OPERATOR)
    assert offers(await operator.get("/letters?q=age:>7d"), "Delete this search")


async def test_hostile_searches_are_only_text(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 1)
    name = "\"><img src=x onerror=alert(1)> {{ 7*7 }} '"
    await context.office.searches.save(name, f"text:{quoted(HOSTILE)}", ADA)

    for path in ("/letters", "/palette", "/letters?q=text:%22x%22&part=saved"):
        page = await browser.get(path)
        assert page.all("img", src="x") == []
        assert "{{ 7*7 }}" in page.text
        assert "\u202e" not in page.html


async def test_the_palette_finds_saved_searches(browser: Browser, context: ServerContext) -> None:
    await save(context, Slow_bank="error:TimeoutError", Old="age:>7d")

    assert places(await browser.part("/palette?part=dialog"))["Saved searches"] == [
        "/letters?q=age%3A%3E7d",
        "/letters?q=error%3ATimeoutError",
    ]
    for text in ("slow B", "timeouterr"):
        found = places(await browser.part(f"/palette?q={text}&part=found"))
        assert found["Saved searches"] == ["/letters?q=error%3ATimeoutError"]


async def test_completion_offers_saved_searches_as_a_whole(
    browser: Browser, context: ServerContext
) -> None:
    await save(context, Slow_bank="error:TimeoutError is:open", Old="age:>7d")

    assert texts(await browser.part("/search/suggest?q=&at=0"))[:2] == [
        "age:>7d",
        "error:TimeoutError is:open",
    ]
    part = await browser.part("/search/suggest?q=slow ba&at=7")
    option = part.find("li", role="option")
    assert (option["data-start"], option["data-end"]) == ("0", "7")
    assert option["data-text"] == "error:TimeoutError is:open"
    assert "saved as Slow bank" in option.text
    assert "age:>7d" not in texts(await browser.part("/search/suggest?q=is:open old&at=11"))


async def test_completion_offers_limited_callers_what_works_for_them(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    await save(guarded, Customer="key:c-7", Old="age:>7d")
    limited = await signed_in(Role.READER, "mails")

    offered = texts(await limited.part("/search/suggest?q=&at=0"))

    assert offered[0] == "age:>7d"
    assert "key:c-7" not in offered
