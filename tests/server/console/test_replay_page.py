"""One replay: its ladder, why it stopped, its report, and the acts on it."""

import csv
import io
from urllib.parse import quote

import pytest

from deadletter.core.access import Role
from deadletter.core.campaign import Outcome
from deadletter.core.letter import By, LetterHead
from deadletter.server.context import ServerContext
from office.making import make_letters
from server.console.replays_rig import Web, WebAs, web, web_as

__all__ = ["web", "web_as"]
GROUP = "1-" + "b" * 16


@pytest.fixture
async def running(web: Web, context: ServerContext) -> str:
    """The path of a careful replay of 25 letters whose first two are on their way."""
    await context.store.keep(make_letters(25))
    path = await web.plan("is:pending source:orders")
    await web.start(path, 25)
    await web.sent(path, 2)
    return path


async def test_a_running_replay_shows_its_ladder(web: Web, running: str) -> None:
    page = await web.text(running)

    assert "2 of 25 sent · 0 handled · 2 on their way" in page
    assert "the first 2" in page
    assert "up to 20" in page
    assert "up to 25" in page
    assert 'aria-label="0 of 25 handled, 2 on their way, 0 failed again, 23 to be sent"' in page
    assert "Pause" in page
    assert f'action="{running}/pause"' in page


async def test_each_part_is_loaded_alone_and_not_twice(web: Web, running: str) -> None:
    for part in ("stage", "causes", "outcomes"):
        answer = await web.get(running, hx=True, part=part)
        tag = answer.headers["hx-ptag"]
        again = await web.client.get(
            running,
            params={"part": part},
            headers=web.headers | {"hx-request": "true", "hx-ptag": tag},
        )
        assert answer.status_code == 200
        assert f'id="{part}"' in answer.text
        assert "<html" not in answer.text
        assert again.status_code == 304
    assert (await web.get(running, part="odd")).status_code == 400


async def test_a_replay_is_paused_and_goes_on(web: Web, running: str) -> None:
    paused = await web.post(f"{running}/pause", {})
    page = await web.text(running)
    asked = await web.text(f"{running}/ask/resume", hx=True)
    resumed = await web.post(f"{running}/resume", {"reason": "after lunch"})

    assert paused.status_code == 303
    assert "Paused. 23 letters not sent yet." in page
    assert "Paused by" in page
    assert "23 letters were not sent and stay as they are." in page
    assert "Go on with 23 letters?" in asked
    assert "Send the next 2" in asked
    assert resumed.status_code == 303
    assert (await web.status(running)).state == "running"
    assert "Goes on with 23 letters." in await web.text(running)
    assert (await web.post(f"{running}/resume", {})).status_code == 409


async def test_a_replay_is_cancelled(web: Web, running: str, context: ServerContext) -> None:
    asked = await web.text(f"{running}/ask/cancel")
    answer = await web.post(f"{running}/cancel", {"reason": "enough"})
    page = await web.text(running)

    assert "Cancel the rest of this replay?" in asked
    assert answer.status_code == 303
    assert "Cancelled. 23 letters were not sent and stay as they are." in page
    assert (await web.post(f"{running}/pause", {})).status_code == 409
    entry = (await context.store.latest_audit(target=running.rpartition("/")[2], limit=1))[0]
    assert (entry.detail, entry.reason) == ("running to cancelled", "enough")


async def test_a_replay_that_stopped_by_itself_says_why_and_what_to_do(
    web: Web, running: str
) -> None:
    await web.fail(running, "shop.KeyError", GROUP)
    await web.reaches(running, "paused")

    page = await web.text(running)

    assert "Stopped by itself: 2 of " in page
    assert "failed again, where 10% may" in page
    assert "23 letters were not sent and stay as they are." in page
    assert "2 · another error" in page
    group = (await _newest(web)).fingerprint
    assert f'href="/groups/{group}"' in page
    assert "shop.KeyError" in page
    assert "<b>again</b>" not in page
    assert "&lt;b&gt;again" in page
    assert "at 7" in page
    assert f"/replays/new?q=is%3Aopen%20group%3A{group}" in page
    assert '<li class="halted">' in page
    assert "Go on…" in page
    assert "plan the others" not in page  # another error: it cannot be told which would have it


async def test_groups_that_fail_as_before_can_be_left_out(
    web: Web, running: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.office.aftermath.has_same_error", lambda *_: True)
    head = await _newest(web)
    await web.fail(running, head.error_type, head.fingerprint)
    await web.reaches(running, "paused")

    page = await web.text(running)

    group = (await _newest(web)).fingerprint
    assert "2 · the same error" in page
    query = quote(f"is:pending source:orders !group:{group}", safe="")
    assert f'<a href="/replays/new?q={query}">plan the others</a>' in page


async def _newest(web: Web) -> LetterHead:
    """Return the letter that died last."""
    return (await web.context.store.find(limit=1)).heads[0]


async def test_the_report_at_the_end_says_what_became_of_all(web: Web, running: str) -> None:
    for sent in (2, 20, 25):
        await web.sent(running, sent)
        await web.confirm(running)
    await web.reaches(running, "done")

    page = await web.text(running)

    assert "25 sent" in page
    assert "25 handled." in page
    assert page.count('<li class="done">') == 3
    assert "Copy the sentence" in page
    assert f'href="{running}/sheet" download' in page
    assert "Cancel…" not in page
    assert "Go on…" not in page


async def test_the_outcomes_are_downloaded_as_a_sheet(web: Web, running: str) -> None:
    await web.sent(running, 2)
    await web.fail(running, "=HYPERLINK(1)", "2-again")
    answer = await web.get(f"{running}/sheet")
    missing = await web.get("/replays/01nosuch/sheet")

    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"].startswith('attachment; filename="replay-')
    assert len(rows) == 25
    assert {row["outcome"] for row in rows} >= {"failed", "planned"}
    assert missing.status_code == 404


async def test_outcomes_are_listed_and_narrowed(web: Web, running: str) -> None:
    await web.confirm(running)
    await web.sent(running, 20)

    handled = await web.text(running, outcome="handled")
    waiting = await web.text(running, outcome="waiting")

    assert handled.count('class="badge green"') == 2
    assert "to be sent" in waiting
    assert (await web.get(running, outcome="odd")).status_code == 400


async def test_long_lists_of_outcomes_go_on(web: Web, context: ServerContext) -> None:
    await context.store.keep(make_letters(60))
    path = await web.plan("*", canary="60")
    await web.start(path, 60, how="once")
    await web.sent(path, 60)

    first = await web.text(path)
    last = await web.text(path, after="50")

    assert f"{path}?after=50" in first
    assert first.count('class="row mono id"') == 50
    assert last.count('class="row mono id"') == 10
    assert f'hx-get="{path}?part=outcomes&amp;after=50"' in last  # it holds still


async def test_a_group_that_was_replayed_can_be_resolved(web: Web, context: ServerContext) -> None:
    letters = make_letters(2)
    await context.store.keep(letters)
    group = letters[0].head.fingerprint
    path = await web.plan(f"group:{group}")
    await web.start(path, 2, how="once")
    await web.sent(path, 2)
    await web.confirm(path)
    await web.reaches(path, "done")

    page = await web.text(path)

    assert "Resolve the group" in page
    assert f'href="/groups/{group}"' in page


async def test_the_beginning_of_an_id_is_enough_and_unknown_ones_are_missing(
    web: Web, running: str
) -> None:
    assert "2 of 25 sent" in await web.text(running[:-8])
    assert (await web.get("/replays/nothing")).status_code == 404
    assert (await web.post("/replays/nothing/pause", {})).status_code == 404


async def test_readers_watch_and_cannot_act(web_as: WebAs, guarded: ServerContext) -> None:
    await guarded.store.keep(make_letters(5))
    operator = await web_as(Role.OPERATOR, name="anna")
    path = await operator.plan()
    await operator.start(path, 5)
    await operator.sent(path, 2)

    page = await (await web_as(Role.READER)).text(path)

    assert "2 of 5 sent" in page
    assert 'aria-disabled="true"' in page
    assert "/ask/cancel" not in page


async def test_letters_refused_or_skipped_are_left_out(web: Web, context: ServerContext) -> None:
    letters = make_letters(3)
    await context.store.keep(letters)
    path = await web.plan()
    await context.office.letters.close([letters[0].id], By("anna"))
    await web.start(path, 3, how="once")
    await web.sent(path, 2)

    page = await web.text(path, outcome="out")

    assert (await web.status(path)).counts[Outcome.SKIPPED] == 1
    assert "skipped" in page
    assert letters[0].id[:16] in page
