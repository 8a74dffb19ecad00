"""The list of letters: rows, pages, facets, counts, wrong searches, and what is new."""

from datetime import timedelta

import pytest

from deadletter.core.access import Role
from deadletter.core.letter import By, State
from deadletter.server.console.letters.letter_list import PAGE
from deadletter.server.context import ServerContext
from office.making import NOW, make_letter
from server.console.conftest import Browser, SignedIn
from server.console.letters_rig import HOSTILE, fields_of, keep, live, move, row, rows


async def test_without_a_search_the_open_letters_are_shown(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 3)
    await move(context.store, ids[:1], State.CLOSED)

    page = await browser.get("/letters")

    assert page.h1 == "2 open letters"
    assert rows(page) == ids[1:]
    assert page.find("input", name="q", type="text")["value"] == "is:open"


async def test_an_empty_search_shows_all_letters(browser: Browser, context: ServerContext) -> None:
    ids = await keep(context.store, 2)
    await move(context.store, ids[:1], State.DISCARDED)

    page = await browser.get("/letters?q=")

    assert page.h1 == "2 letters"
    assert rows(page) == ids
    assert "discarded" in row(page, ids[0]).text


async def test_a_row_says_what_broke_where_and_when(
    browser: Browser, context: ServerContext
) -> None:
    (id_,) = await keep(context.store, 1, key="c-7", version="1.8.0", attempts=5)

    page = await browser.get("/letters")

    shown = row(page, id_)
    link = shown.find("a", class_="row")
    assert link.text == "TimeoutError"
    assert link["href"] == f"/letters/{id_}?in=is%3Aopen"
    for part in ("pending", "the bank did not answer", "orders", "c-7", "1.8.0", "5", "3 min ago"):
        assert part in shown.text


async def test_an_office_without_any_letter_teaches(browser: Browser) -> None:
    page = await browser.get("/letters")

    assert "No letter has ever died here." in page.main.text
    assert any("dlq drain" in one.text for one in page.main.all("code"))


async def test_no_open_letter_is_good_news(browser: Browser, context: ServerContext) -> None:
    ids = await keep(context.store, 1)
    await move(context.store, ids, State.CLOSED)

    page = await browser.get("/letters")

    assert page.h1 == "No open letters"
    assert page.link("All letters") == "/letters?q="


async def test_chips_take_terms_off_one_by_one(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 1)

    page = await browser.get("/letters?q=is:open source:orders (key:a OR !key:b)")

    chips = page.find("ul", class_="chips").all("a")
    assert [one.text for one in chips] == ["is:open", "source:orders", "key:a OR !key:b"]
    assert fields_of(chips[1]["href"]) == {"q": "is:open (key:a OR !key:b)"}


async def test_pages_lead_to_older_letters_and_back(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 2 * PAGE + 5)

    first = await browser.get("/letters?q=source:orders")
    second = await browser.get(first.link("Older"))
    third = await browser.get(second.link("Older"))
    back = await browser.get(third.link("Newer"))
    start = await browser.get(back.link("Newer"))

    assert rows(first) + rows(second) + rows(third) == ids
    assert rows(back) == rows(second)
    assert rows(start) == rows(first)
    assert rows(await browser.get(third.link("Newest"))) == rows(first)
    assert "Older" not in {one.text for one in third.all("a")}
    assert "Newer" not in {one.text for one in first.all("a")}


async def test_a_page_keeps_its_letters_while_new_ones_die(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, PAGE + 5)
    first = await browser.get("/letters?q=is:open")
    older = first.link("Older")

    new = make_letter(5_000, died=timedelta(seconds=1), now=NOW)
    await context.store.keep([new])
    part = await browser.part(live(first, "rows"))

    assert rows(part) == ids[:PAGE], "rows never move under the reader"
    assert part.link("1 new letter · show") == "/letters?q=is%3Aopen"
    assert rows(await browser.get(older)) == ids[PAGE:]
    assert rows(await browser.get("/letters?q=is:open"))[0] == new.id


async def test_rows_say_what_has_become_of_their_letters(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 4)
    page = await browser.get("/letters?q=is:open")

    await move(context.store, ids[:1], State.REPLAYING)
    await move(context.store, ids[1:2], State.REVIEWED)
    await context.store.purge([ids[2]], By("anna", "secret"))
    part = await browser.part(live(page, "rows"))

    assert rows(part) == ids
    assert "gone" in row(part, ids[0]).classes
    assert "replaying" in row(part, ids[0]).text
    assert "gone" not in row(part, ids[1]).classes
    assert "reviewed" in row(part, ids[1]).text
    assert "purged" in row(part, ids[2]).text
    assert "new letter" not in part.text


async def test_an_unchanged_part_is_not_sent_again(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 2)
    page = await browser.get("/letters")
    part = live(page, "rows")
    await browser.part(part)
    assert browser.last is not None

    await browser.part(part, status=304, **{"hx-ptag": browser.last.headers["hx-ptag"]})


async def test_later_pages_do_not_count_new_letters(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, PAGE + 1)
    second = await browser.get((await browser.get("/letters?q=is:open")).link("Older"))

    assert "top" not in fields_of(live(second, "rows"))


async def test_a_count_that_costs_is_a_part(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, PAGE + 10)

    page = await browser.get("/letters?q=error:TimeoutError")

    assert page.h1 == "Letters"
    assert (await browser.part(live(page, "count"))).h1 == "60 letters"


async def test_the_count_stays_true_while_the_page_is_open(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 3)
    page = await browser.get("/letters?q=is:open")
    await move(context.store, ids[:1], State.CLOSED)

    assert page.find(id="count")["data-live"] == "letters"
    assert (await browser.part(live(page, "count"))).h1 == "2 open letters"


async def test_what_reads_letters_one_by_one_is_counted_on_request(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, PAGE + 2)

    ahead = await browser.get("/letters?q=body.order:>0")
    part = await browser.part(live(ahead, "found"))
    page = await browser.get(ahead.main.find("noscript").find("a")["href"])

    assert len(rows(ahead)) == 0
    assert len(rows(part)) == len(rows(page)) == PAGE
    button = page.find("button", hx_target="#count")
    assert "hx-trigger" not in button.attrs
    assert (await browser.part(button["hx-get"])).h1 == "52 letters"
    facets = page.find(id="facets").find("a")
    assert "hx-trigger" not in facets.attrs
    assert "Of the newest 52" in (await browser.get(facets["href"])).main.text


async def test_facets_narrow_and_exclude(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 3, version="1.8.0")
    await keep(context.store, 1, first=10, version="1.7.2", error_type="builtins.KeyError")

    page = await browser.get("/letters?q=is:open")
    part = await browser.part(live(page, "facets"))

    assert "Of the newest 4" in part.text
    only = {one.text: fields_of(one["href"])["q"] for one in part.all("a", class_="only")}
    assert only["TimeoutError"] == "is:open error:TimeoutError"
    assert only["1.7.2"] == "is:open version:1.7.2"
    without = {
        one["aria-label"]: fields_of(one["href"])["q"] for one in part.all("a", class_="without")
    }
    assert without["Without KeyError"] == "is:open !error:KeyError"
    assert rows(await browser.get(f"/letters?q={only['1.7.2']}")) != []


async def test_facets_of_an_alternative_apply_to_all_of_it(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 2)

    part = await browser.part("/letters?q=is:pending OR is:closed&part=facets")

    links = {one.text: fields_of(one["href"])["q"] for one in part.all("a", class_="only")}
    assert links["TimeoutError"] == "(is:pending OR is:closed) error:TimeoutError"


async def test_a_chosen_facet_is_no_link(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 1)

    part = await browser.part("/letters?q=error:TimeoutError&part=facets")

    assert "TimeoutError" not in {one.text for one in part.all("a")}
    assert part.find(class_="now").text == "TimeoutError"


async def test_facets_come_without_scripts_on_request(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 1)
    page = await browser.get("/letters?q=is:open")

    with_them = await browser.get(page.link("Values of the newest letters"))

    assert "Of the newest 1" in with_them.find(id="facets").text


@pytest.mark.parametrize(
    ("query", "token", "sentence"),
    [
        ("is:open sorce:orders", "sorce:orders", 'did you mean "source"?'),
        ("is:odd", "odd", "is:odd is not valid"),
        ("(is:open", "(is:open", "never closed"),
        ("age:3", "age:3", "age needs > or <"),
    ],
)
async def test_a_wrong_search_is_kept_and_the_place_is_shown(
    browser: Browser, context: ServerContext, query: str, token: str, sentence: str
) -> None:
    await keep(context.store, 1)

    page = await browser.get(f"/letters?q={query}", status=400)

    assert page.find("input", name="q", type="text")["value"] == query
    assert page.find("mark").text == token
    assert sentence in page.main.text


async def test_the_nearest_field_is_offered(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 1)

    page = await browser.get("/letters?q=is:open sorce:orders", status=400)

    assert fields_of(page.link("Search is:open source:orders")) == {"q": "is:open source:orders"}


async def test_nothing_found_shows_what_each_term_finds_alone(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 3)

    page = await browser.get("/letters?q=is:open key:nobody")
    part = await browser.part(live(page, "alone"))

    assert "No letter matches this search" in page.main.text
    assert [one.text for one in part.all("li")] == ["is:open 3 letters", "key:nobody 0 letters"]


async def test_every_page_names_the_command_and_the_api(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 1)

    page = await browser.get('/letters?q=error:"it\'s"')

    assert page.find("footer").find("code").text == """dlq list 'error:"it'"'"'s"'"""
    api = page.link("as an API call")
    assert (await browser.client.get(api)).status_code == 200


async def test_limited_readers_see_their_mailboxes_only(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    await keep(guarded.store, 2)
    mine = await keep(guarded.store, 1, first=50, source="mails")
    reader = await signed_in(Role.READER, "mails")

    page = await reader.get("/letters")

    assert page.h1 == "1 open letter"
    assert rows(page) == mine
    assert "orders" not in page.main.text
    other = await keep(guarded.store, 1, first=90)
    part = await reader.part(f"/letters?q=is:open&part=rows&ids={other[0]},{mine[0]}")
    assert "TimeoutError" not in row(part, other[0]).text
    facets = await reader.part("/letters?q=&part=facets")
    assert "Of the newest 1" in facets.text


async def test_readers_cannot_search_for_what_is_masked(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    await keep(guarded.store, 1)
    reader = await signed_in(Role.READER)

    page = await reader.get("/letters?q=body.password:x", status=400)

    assert "body.password is masked for you" in page.main.text


async def test_hostile_letters_are_only_text(browser: Browser, context: ServerContext) -> None:
    await keep(
        context.store, 3, error_type=HOSTILE, error_text=HOSTILE, key=HOSTILE, version=HOSTILE
    )

    page = await browser.get("/letters?q=is:open")
    facets = await browser.part(live(page, "facets"))

    for shown in (page, facets):
        assert "<script>x" not in shown.html
        assert "\u202e" not in shown.html
        assert "\x1b" not in shown.html
    assert "\\u202e" in page.main.text


async def test_long_texts_are_cut(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, PAGE, error_text="x" * 20_000)

    page = await browser.get("/letters?q=is:open")

    assert len(page.html) < 150_000


async def test_the_sheet_has_the_letters_of_the_search(
    browser: Browser, context: ServerContext
) -> None:
    ids = await keep(context.store, 2)
    await keep(context.store, 1, first=10, source="mails")
    page = await browser.get("/letters?q=source:orders")

    answer = await browser.client.get(page.link("CSV"))

    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"].startswith('attachment; filename="letters-')
    assert [line.partition(",")[0] for line in answer.text.splitlines()[1:]] == ids


async def test_a_place_that_is_none_is_not_blamed_on_the_search(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 1)

    page = await browser.get("/letters?q=is:open&after=nowhere", status=400)

    assert "is not a valid cursor" in page.text
    assert page.all("mark") == []


async def test_unknown_parameters_are_refused(browser: Browser) -> None:
    await browser.get("/letters?qurey=is:open", status=400)
