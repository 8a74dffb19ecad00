"""The page of one group: why, since when, is it fixed, what to do."""

from deadletter.core.access import Role
from deadletter.core.letter import By, State
from deadletter.ports import LetterStore, Move
from deadletter.server.console.groups.common import value_path
from deadletter.server.console.stacks import trace_of
from deadletter.server.context import ServerContext
from html_pages import Element, Page
from server.console.conftest import Browser, SignedIn
from server.console.groups_rig import BY, HOSTILE, keep, live, stand
from server.console.mailbox_rig import note_workers

STACK = """  File "/app/lib/python3.11/site-packages/httpx/_client.py", line 914, in send
  File "/app/lib/python3.11/site-packages/httpx/_models.py", line 7, in raise_for_status
  File "/srv/shop/bank.py", line 31, in call
  File "/srv/shop/shop.py", line 88, in charge
caused by shop.Refused: 503, Authorization: Bearer abcdef0123456789xyz
"""
HOUR = 3_600.0


def panel(page: Page) -> Element:
    """Return the panel that says what is known about a fix."""
    return page.find("section", class_="fixed")


async def test_the_head_says_what_it_is_and_how_it_stands(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", 3, error_type="builtins.KeyError", error_text="'vat_rate'")
    await keep(context.store, "2-b")
    await stand(context.store, "2-a", "resolved", owner="oncall", note="made them", version="1.9")

    page = await browser.get("/groups/2-a")

    head = page.find(id="head")
    assert page.h1 == "KeyError"
    assert "'vat_rate'" in head.text
    assert "resolved in 1.9" in head.text
    assert "orders · shop:charge · transient TIMEOUT · group 2-a" in head.text
    assert "open3 75% of all" in head.text
    assert "owneroncall" in head.text
    assert "Note made them" in head.text
    assert "KeyError in orders · deadletter</title>" in page.html
    foot = page.find("footer", class_="foot")
    assert "dlq groups show 2-a" in foot.text
    call = await browser.client.get(page.link("as an API call"))
    assert call.json()["fingerprint"] == "2-a"


async def test_a_newer_version_without_deaths_offers_the_letters_from_before(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", 4, version="1.7.2", age=5 * HOUR)
    await keep(context.store, "2-other", version="1.8.0", age=HOUR)

    page = await browser.get("/groups/2-a")

    found = panel(page)
    assert "quiet" in found.classes
    assert "No message has died of this in 1.8.0, first seen 1 h ago." in found.text
    assert "No death of it for 5 h." in found.text
    plan = page.link("Plan replay of 4 letters from before r")
    assert plan == "/replays/new?q=group%3A2-a%20is%3Aopen%20version%3A%3C1.8.0"


async def test_an_older_version_that_still_runs_is_said(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-other", version="1.8.0", age=HOUR)
    await keep(context.store, "2-a", version="1.7.2", age=120)

    found = panel(await browser.get("/groups/2-a"))

    assert "No message has died of this in 1.8.0" in found.text
    assert "still ran then: a message died of it in 1.7.2 2 min ago." in found.text


async def test_a_version_that_should_have_the_fix_and_does_not_is_said(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", 2, version="1.7.2", age=30 * HOUR)
    await stand(context.store, "2-a", "resolved", version="1.8.0")
    await keep(context.store, "2-a", 3, version="1.8.1", age=60)

    found = panel(await browser.get("/groups/2-a"))

    assert "still" in found.classes
    assert (
        "It still happens: 3 deaths in 1.8.0 or newer, the last 1 min ago in 1.8.1." in found.text
    )
    assert "3 other open letters died in 1.8.0 or later, or name no version." in found.text
    assert found.find("a", class_="button").text.startswith("Plan replay of 2 letters from before")


async def test_without_a_newer_version_nothing_is_called_fixed(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", version="1.8.0", age=120)
    await keep(context.store, "2-plain", 2, version="", source="mails")

    still = panel(await browser.get("/groups/2-a"))
    unknown = panel(await browser.get("/groups/2-plain"))

    assert "No newer version than 1.8.0 was seen at orders" in still.text
    assert still.find("a", class_="button").text.startswith("Plan replay of 1 letter")
    assert "unknown" in unknown.classes
    assert "Its deaths name no version." in unknown.text
    for one in (still, unknown):
        assert "is fixed" not in one.text.lower()


async def test_versions_that_workers_run_are_told_with_how_many(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", 4, version="1.8.0", age=HOUR)
    await note_workers(context, "1.8.1", "1.8.0", "1.8.1", "1.8.1")

    page = await browser.get("/groups/2-a")

    found = panel(page)
    assert "quiet" in found.classes
    assert "1.8.1 runs on 3 of 4 workers since " in found.text
    assert "UTC; nobody has died of this in it." in found.text
    assert "1 worker still runs 1.8.0 on shop-2, in which messages die of it." in found.text
    assert page.link("Plan replay of 4 letters from before r").endswith("version%3A%3C1.8.1")


async def test_a_fix_that_no_worker_runs_is_not_called_quiet(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", version="1.8.0", age=HOUR)
    await stand(context.store, "2-a", "resolved", version="1.8.1")

    alone = panel(await browser.get("/groups/2-a"))
    await note_workers(context, "1.8.0")
    old = panel(await browser.get("/groups/2-a"))
    await note_workers(context, "1.8.1")
    new = panel(await browser.get("/groups/2-a"))

    assert "No worker of orders was heard of lately" in alone.text
    assert "no worker of orders was heard of that runs it." in old.text
    assert "unknown" in old.classes
    assert "1.8.1 runs on the only worker since " in new.text


async def test_versions_whose_order_is_unknown_are_not_called_newer(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", version="3f9c2ab", age=HOUR)
    await note_workers(context, "bb00002", "bb00002")

    found = panel(await browser.get("/groups/2-a"))

    assert "unknown" in found.classes
    assert "bb00002 runs on all 2 workers since " in found.text
    assert "Whether it is newer than 3f9c2ab is not known." in found.text


async def test_many_letters_from_before_are_counted_in_a_part(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", 501, version="1.7.2", age=HOUR)
    await keep(context.store, "2-other", version="1.8.0", age=60)

    page = await browser.get("/groups/2-a")
    part = await browser.part("/groups/2-a?part=fixed")

    assert "Plan replay of the letters from before" in panel(page).text
    assert panel(page).find("div", hx_trigger="load")["hx-get"] == "/groups/2-a?part=fixed"
    assert "Plan replay of 501 letters from before" in panel(part).text
    assert not panel(part).all("div", hx_trigger="load")


async def test_what_replays_showed_is_told(browser: Browser, context: ServerContext) -> None:
    ids = await keep(context.store, "2-a", 3)
    await _move(context.store, ids[:2], State.REPLAYING)
    await _move(context.store, ids[:1], State.REPLAYED, old=State.REPLAYING)

    found = panel(await browser.get("/groups/2-a"))

    assert "1 letter of it was sent back and handled." in found.text
    assert "1 letter waits for the outcome of a replay." in found.text


async def test_the_stack_of_the_newest_letter_is_folded_and_masked(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", age=HOUR, stack="old")
    (id_,) = await keep(context.store, "2-a", stack=STACK)

    page = await browser.get("/groups/2-a")

    trace = page.find("div", class_="trace")
    assert trace.find("summary").text == "2 frames of libraries"
    assert [one.raw.count("File") for one in trace.all("pre", class_="own")] == [2]
    assert "abcdef0123456789xyz" not in page.html
    assert "hx-ignore" in trace.attrs
    assert page.link(id_[:12]) == f"/letters/{id_}?in=group%3A2-a"


async def test_deaths_are_drawn_by_version_with_a_table_that_leads_to_letters(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", 2, version="1.7", age=20 * HOUR)
    await keep(context.store, "2-a", 3, version="1.8", age=2 * HOUR)

    page = await browser.get("/groups/2-a")

    chart = page.find("svg", id="by-version")
    assert chart["aria-label"].startswith("Deaths of the last 24 hours by version: 5 deaths")
    table = page.table("Deaths of the group by time and version")
    assert [row[1:] for row in table] == [["3", "0", "3"], ["0", "2", "2"]]
    link = page.find(id="deaths").all("td")[2].find("a")["href"]
    assert "dead%3A%3E%3D2030-01-01T10%3A00" in link
    week = await browser.part("/groups/2-a?part=deaths&range=7d")
    assert week.find("svg", id="by-version")["data-step"] == "3600"
    assert live(week, "deaths") == "/groups/2-a?part=deaths&range=7d"


async def test_an_old_group_shows_the_span_of_its_last_death(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", age=3 * 24 * HOUR)

    page = await browser.get("/groups/2-a")

    assert page.find("nav", class_="spans").find("a", aria_current="true").text == "7d"
    assert page.find("svg", id="by-version")["data-totals"].count("1") == 1


async def test_common_values_are_masked_and_lead_to_their_letters(
    browser: Browser, context: ServerContext
) -> None:
    headers = {"tenant": "eu", "authorization": "Bearer abcdef0123456789xyz"}
    for n in range(5):
        body = b'{"country": "CH", "amount": %d, "card": "4111111111111111"}' % n
        await keep(context.store, "2-a", headers=headers, body=body)

    page = await browser.get("/groups/2-a")
    part = await browser.part("/groups/2-a?part=common")
    without = await browser.get("/groups/2-a?show=common")

    assert page.find("div", class_="deferred")["hx-get"] == "/groups/2-a?part=common"
    assert part.link("CH") == "/letters?q=group%3A2-a%20body.country%3ACH"
    assert part.link("eu") == "/letters?q=group%3A2-a%20header.tenant%3Aeu"
    assert "body.amount0 to 4" in part.text
    for one in (part, without):
        assert "body.card[redacted]5 of 5" in one.text
        assert "abcdef0123456789xyz" not in one.html
        assert "4111111111111111" not in one.html
    texts = await browser.part("/groups/2-a?part=variants")
    assert "1 error text, without ids and numbers" in texts.text


async def test_letters_of_the_group_are_listed_newest_first(
    browser: Browser, context: ServerContext
) -> None:
    ids = [
        (await keep(context.store, "2-a", age=age, key=f"c-{age}"))[0] for age in (300, 200, 100)
    ]
    await _move(context.store, ids[:1], State.CLOSED)

    page = await browser.get("/groups/2-a")

    part = page.find(id="letters")
    assert [a["href"] for a in part.all("a", class_="row")] == [
        f"/letters/{id_}?in=group%3A2-a" for id_ in reversed(ids)
    ]
    assert "closed 1" in part.text
    assert page.link("All 3 letters") == "/letters?q=group%3A2-a"
    assert page.link("Compare two c") == f"/letters/{ids[2]}/compare?with={ids[0]}"


async def test_long_ids_of_messages_show_both_ends(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", message_id="01a1f23f-7306-77d9-98fd-0123456789ab")

    row = (await browser.get("/groups/2-a")).find(id="letters").find("a", class_="row")

    assert row.text == "01a1f23f-73…23456789ab"


async def test_replays_of_the_group_are_listed(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, "2-a", 2)
    await keep(context.store, "2-abc")
    alone = await browser.get("/groups/2-a")
    for query, reason in (("group:2-a is:open", "the bank is back"), ("group:2-abc", "another")):
        await browser.post("/replays", q=query, how="once", reason=reason, key=reason)

    page = await browser.get("/groups/2-a")

    assert "No replay of this group was planned yet." in alone.find(id="replays").text
    assert page.link("the bank is back").startswith("/replays/")
    assert "another" not in page.find(id="replays").text


async def test_the_audit_of_the_group_says_who_did_what(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a")
    await stand(context.store, "2-a", "ongoing", owner="bo")

    page = await browser.get("/groups/2-a")

    assert "anna new to ongoing, owner bo · because" in page.find(id="acts").text


async def test_every_part_is_the_same_alone(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, "2-a", 2)
    page = await browser.get("/groups/2-a")

    for name in ("head", "fixed", "deaths", "letters", "replays", "acts"):
        part = await browser.part(live(page, name))
        assert part.find(id=name).text == page.find(id=name).text, name


async def test_the_beginning_of_a_name_and_a_merged_name_lead_on(
    browser: Browser, context: ServerContext
) -> None:
    for name in ("2-first", "2-second", "2-third"):
        await keep(context.store, name)
    await context.office.groups.merge("2-first", ["2-second"], BY)

    await browser.get("/groups/2-second")
    assert browser.path == "/groups/2-first"
    merged = await browser.get("/groups/2-f")
    assert browser.path == "/groups/2-first"
    assert "Merged into this group: 2-second by anna" in merged.main.text
    several = await browser.get("/groups/2", status=409)
    assert "several groups begin with 2" in several.text.lower()


async def test_groups_of_others_are_as_missing_as_any(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    await keep(guarded.store, "2-ours", 2)
    await keep(guarded.store, "2-theirs", source="mails")
    await keep(guarded.store, "2-also", source="mails")
    await guarded.office.groups.merge("2-theirs", ["2-also"], By("anna"))
    somebody = await signed_in(Role.READER, "orders")

    missing = (await somebody.get("/groups/2-nothing", status=404)).text
    for name in ("2-theirs", "2-also"):
        page = await somebody.get(f"/groups/{name}", status=404)
        assert page.text.replace(name, "2-nothing") == missing
        for part in ("head", "common", "variants", "deaths"):
            await somebody.part(f"/groups/{name}?part={part}", status=404)
    own = await somebody.get("/groups/2-ours")
    assert "open2 100% of all" in own.find(id="head").text
    assert not own.all(id="acts")


async def test_readers_look_and_do_nothing(signed_in: SignedIn, guarded: ServerContext) -> None:
    await keep(guarded.store, "2-a")
    reader = await signed_in(Role.READER)

    page = await reader.get("/groups/2-a")

    assert [form.action for form in page.main.all("form")] == []  # type: ignore[attr-defined]
    buttons = page.find("div", class_="toolbar").all("button")
    assert buttons
    assert all(one.get("aria-disabled") == "true" for one in buttons)
    assert "Plan replay of 1 letter" in panel(page).text
    assert not panel(page).all("a")


async def test_a_purged_group_says_so(browser: Browser, context: ServerContext) -> None:
    ids = await keep(context.store, "2-a", 2)
    await context.store.purge(ids, BY)

    page = await browser.get("/groups/2-a")

    assert "No letter of it is here any more." in page.main.text
    assert "All its letters have been purged." in page.main.text
    assert not [one for one in page.all("a") if one.text.startswith("Plan replay")]


async def test_hostile_letters_are_shown_as_text(browser: Browser, context: ServerContext) -> None:
    await keep(
        context.store,
        "2-a",
        3,
        error_type=f"x.{HOSTILE}",
        error_text=HOSTILE * 100,
        version=HOSTILE[:90],
        source="a b<c>",
        frame="<b>" * 80,
        stack=(HOSTILE + "\n") * 400,
        headers={"<h>": HOSTILE},
        body=b'{"<script>x()</script>": "</textarea><script>x()</script>"}',
        message_id="<i>" * 40,
        consumer=HOSTILE,
        code=HOSTILE,
    )
    await stand(context.store, "2-a", "resolved", owner=HOSTILE, note=HOSTILE * 30, version=HOSTILE)

    for path in ("/groups/2-a?show=common", "/groups/2-a?show=variants"):
        page = await browser.get(path)

        assert page.main.all("script") == page.main.all("img") == page.main.all("i") == []
        assert "\u202e" not in page.html
        assert "\x1b" not in page.html
        assert len(page.html) < 300_000


def test_stacks_without_own_frames_are_not_folded() -> None:
    (only,) = trace_of('  File "/lib/python3.12/json/decoder.py", line 3, in decode').chunks

    assert only.folds == ""
    assert not only.is_application
    assert trace_of("").chunks == ()
    long = trace_of("\n".join(f'  File "shop.py", line {n}, in x' for n in range(2_000)))
    assert long.cut > 1_000
    assert long.chunks[-1].lines[-1].endswith("line 1999, in x")


def test_values_that_cannot_be_searched_for_lead_nowhere() -> None:
    assert value_path("2-a", "worker", "w-1") == ""
    assert value_path("2-a", "body.card", "[redacted]") == ""
    assert value_path("2-a", "body.note", "x" * 120 + "…") == ""
    assert value_path("2-a", "version", "1.8") == "/letters?q=group%3A2-a%20version%3A1.8"


async def _move(
    store: LetterStore, ids: list[str], state: State, *, old: State = State.PENDING
) -> None:
    move = Move(ids=tuple(ids), old=frozenset({old}), new=state)
    assert len(await store.move(move, BY)) == len(ids)
