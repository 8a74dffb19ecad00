"""The list of replays."""

from deadletter.core.access import Role
from deadletter.server.context import ServerContext
from office.making import make_letter, make_letters
from server.console.replays_rig import Web, WebAs, web, web_as

__all__ = ["web", "web_as"]
HOSTILE = "<script>alert(1)</script>"


async def test_an_office_without_replays_says_how_to_begin(web: Web) -> None:
    page = await web.text("/replays")

    assert "Nothing has been replayed yet." in page
    assert "dlq replay is:pending --dry-run" in page


async def test_replays_are_listed_with_how_far_they_are(web: Web, context: ServerContext) -> None:
    await context.store.keep(make_letters(5))
    planned = await web.plan("is:pending source:orders")
    running = await web.plan()
    await web.start(running, 5)
    await web.sent(running, 2)

    page = await web.text("/replays")

    assert page.index(running) < page.index(planned)  # latest first
    assert "5 to send" in page
    assert "0 of 5 handled" in page
    assert "the bank is back" in page


async def test_the_list_is_narrowed_to_a_state(web: Web, context: ServerContext) -> None:
    await context.store.keep(make_letters(2))
    planned, cancelled = await web.plan(), await web.plan()
    await web.post(f"{cancelled}/cancel", {"reason": "enough"})

    shown = await web.text("/replays", state="cancelled")
    part = await web.text("/replays", hx=True, state="planned", part="rows")

    assert cancelled in shown
    assert planned not in shown
    assert planned in part
    assert "<html" not in part
    assert "No replay here is running." in await web.text("/replays", state="running")
    assert (await web.get("/replays", state="odd")).status_code == 400


async def test_a_replay_that_stopped_by_itself_is_shown_as_halted(
    web: Web, context: ServerContext
) -> None:
    await context.store.keep(make_letters(5))
    path = await web.plan()
    await web.start(path, 5)
    await web.sent(path, 2)
    await web.fail(path, "KeyError", "1-" + "b" * 16)
    await web.reaches(path, "paused")

    assert "octagon-alert" in await web.text("/replays", state="paused")


async def test_the_list_goes_on_behind_a_page(web: Web, context: ServerContext) -> None:
    await context.store.keep(make_letters(1))
    paths = [await web.plan() for _ in range(26)]

    first = await web.text("/replays")
    last = await web.text("/replays", after=paths[1].rpartition("/")[2])

    assert paths[0] not in first
    assert f"after={paths[1].rpartition('/')[2]}" in first
    assert paths[0] in last


async def test_hostile_text_stays_text(web: Web, context: ServerContext) -> None:
    await context.store.keep(make_letters(1))
    path = await web.plan(f'is:pending text:"{HOSTILE}" or is:pending', reason=HOSTILE, text="true")

    for page in (await web.text("/replays"), await web.text(path)):
        assert HOSTILE not in page
        assert "&lt;script&gt;" in page


async def test_callers_of_some_mailboxes_see_their_own_replays(
    web_as: WebAs, guarded: ServerContext
) -> None:
    await guarded.store.keep([*make_letters(2), make_letter(7, source="mails")])
    all_seeing = await web_as(Role.OPERATOR, name="anna")
    limited = await web_as(Role.OPERATOR, "mails", name="mails")
    path = await all_seeing.plan()

    page = await limited.text("/replays")

    assert path not in page
    assert (await limited.get(path)).status_code == 404
    assert (await limited.post(f"{path}/cancel", {})).status_code == 404
    own = await limited.plan("*")
    assert own in await limited.text("/replays")
    assert (await limited.judged(own)).plan is not None
