"""Planning a replay: the form, the verdicts, what would happen, and approval."""

from datetime import UTC, datetime

import pytest

from deadletter.core.access import Role
from deadletter.core.campaign import Care, Verdict
from deadletter.ports import QueueOptions
from deadletter.server.console.replays.sentences import first_button, what_will_happen
from deadletter.server.context import ServerContext
from deadletter.settings import Serve, Settings
from office.making import make_letter, make_letters
from server.console.replays_rig import PLAN, Web, WebAs, web, web_as

__all__ = ["web", "web_as"]


@pytest.fixture
def settings() -> Settings:
    return Settings(serve=Serve(replay_to=("canary",)))


def test_a_careful_replay_in_words() -> None:
    said = what_will_happen(Care(canary=10, ramp=True), 397, None, keyed=True)

    assert said[0] == "10 letters go now, the oldest first."
    assert said[1] == "If at most 1 of them fails again, 90 more, then the other 297 follow."
    assert said[2] == "It stops by itself when more than 10% fail again."
    assert "one after the other" in said[3]
    assert first_button(Care(canary=10), 397) == "Send the first 10"
    assert first_button(Care(canary=10), 10) == "Send all 10 letters"
    assert first_button(Care(), 1) == "Send 1 letter"


def test_a_replay_at_once_in_words() -> None:
    said = what_will_happen(Care(halt_on=1.0), 2, 0.5, reports=False)

    assert said[0] == "All 2 letters go now, the oldest first."
    assert "however many" in said[1]
    assert said[2].endswith("at least 4 s.")
    assert said[3].startswith("Nobody reports")
    assert what_will_happen(Care(), 0, None) == ("Nothing would be sent.",)


async def test_the_form_counts_and_foretells_without_storing_anything(
    web: Web, context: ServerContext
) -> None:
    await context.store.keep(make_letters(30))

    page = await web.text("/replays/new", q="is:pending")
    part = await web.text(
        "/replays/new", hx=True, q="is:pending", shown="true", canary="3", limit="7"
    )

    assert "30 letters" in page
    assert "10 letters go now" in page
    assert 'value="true" checked' in page
    assert "3 letters go now" in part
    assert "the other 4 follow" in part
    assert "canary" in page  # a mailbox of serve.replay_to
    assert await context.store.campaigns() == []


async def test_a_wrong_search_keeps_what_was_typed(web: Web) -> None:
    page = await web.text("/replays/new", q="odd:field")

    assert 'value="odd:field"' in page
    assert "There is no field" in page or "no field" in page.lower()
    assert (await web.get("/replays/new", q="*", canary="0")).status_code == 400


async def test_planning_takes_the_form_once_and_judges(web: Web, context: ServerContext) -> None:
    await context.store.keep(make_letters(3))
    form = PLAN | {"q": "is:pending", "key": "k-1", "limit": "2", "halt": "25"}

    first = await web.post("/replays", form)
    again = await web.post("/replays", form)

    path = first.headers["location"]
    campaign = await web.judged(path)
    assert (first.status_code, again.headers["location"]) == (303, path)
    assert len(await context.store.campaigns()) == 1
    assert campaign.plan is not None
    assert campaign.plan.limit == 2
    assert (campaign.care.canary, campaign.care.ramp, campaign.care.halt_on) == (2, True, 0.25)
    assert campaign.reason == "the bank is back"


async def test_boxes_that_are_not_ticked_are_off(web: Web, context: ServerContext) -> None:
    await context.store.keep(make_letters(3))

    answer = await web.post(
        "/replays", {"q": "*", "how": "steady", "rate": "5", "reason": "why", "shown": "true"}
    )

    campaign = await web.status(answer.headers["location"])
    assert campaign.rate == 5.0
    assert campaign.care == Care(key_order=False)


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"reason": ""}, 400, "needs a reason"),
        ({"limit": "many"}, 400, "the limit must be a number"),
        ({"limit": "0"}, 400, "the limit must be"),
        ({"how": "steady", "rate": "-1"}, 400, "the rate must be"),
        ({"halt": "101"}, 400, "0 to 100 percent"),
        ({"q": "bank"}, 400, "neither the id of a letter nor a field"),
        ({"q": "source:nothing"}, 404, "no letter matches"),
        ({"to": "elsewhere"}, 400, "cannot be replayed to"),
        ({"odd": "1"}, 400, "unknown field"),
    ],
)
async def test_wrong_forms_are_refused_with_a_sentence(
    web: Web, context: ServerContext, fields: dict[str, str], status: int, said: str
) -> None:
    await context.store.keep(make_letters(3))

    answer = await web.post("/replays", PLAN | {"q": "is:pending"} | fields)

    assert answer.status_code == status
    assert said.lower() in answer.text.lower()
    assert await context.store.campaigns() == []


async def test_letters_that_were_chosen_one_by_one_are_planned(
    web: Web, context: ServerContext
) -> None:
    letters = make_letters(3)
    await context.store.keep(letters)
    ids = [one.id for one in letters[:2]]

    page = await web.text("/replays/new", ids=ids)
    answer = await web.post("/replays", PLAN | {"ids": ids})

    assert "<strong>2 letters</strong> that you chose" in page
    plan = (await web.judged(answer.headers["location"])).plan
    assert plan is not None
    assert plan.total == 2


async def test_verdicts_are_shown_with_their_defaults(web: Web, context: ServerContext) -> None:
    secret = make_letter(9, headers={"authorization": "x"})
    old = make_letter(10, expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    await context.store.keep([*make_letters(3), secret, old])
    path = await web.plan("*")

    page = await web.text(path)

    assert 'value="ready" checked' in page
    assert 'value="credentials" checked' in page
    assert 'value="expired">' in page  # somebody has to decide
    assert "you decide" in page
    assert secret.id in page
    assert "Send the first 2…" in page
    assert "up to 4" in page


async def test_the_preview_follows_the_form(web: Web, context: ServerContext) -> None:
    secret = make_letter(9, headers={"authorization": "x"})
    await context.store.keep([*make_letters(3), secret])
    path = await web.plan("*")
    form = {"shown": "true", "send": "ready", "how": "once"}

    preview = await web.text(path, hx=True, **form | {"part": "preview"})
    asked = await web.text(f"{path}/ask/start", hx=True, **form)
    whole = await web.text(f"{path}/ask/start", **form)

    assert "Send all 3 letters…" in preview
    assert "Send 3 letters?" in asked
    assert 'name="expect" value="3"' in asked
    assert "<html" in whole
    none = await web.get(f"{path}/ask/start", hx=True, shown="true")
    assert none.status_code == 409


async def test_a_plan_that_is_being_judged_cannot_be_started(
    web: Web, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(campaign: str) -> bool:
        return False

    letters = make_letters(3)
    await context.store.keep(letters)
    replays = context.office.replays
    monkeypatch.setattr(replays.sender, "judge_some", nobody)
    answer = await web.post("/replays", PLAN | {"q": "*"})
    path = answer.headers["location"]

    page = await web.text(path)
    asked = await web.get(f"{path}/ask/start", hx=True)
    started = await web.start(path, 3)

    assert "0 of 3 letters judged" in page
    assert "This is told when all letters are judged." in page
    assert (asked.status_code, started.status_code) == (409, 409)


async def test_starting_sends_what_was_agreed_to(web: Web, context: ServerContext) -> None:
    secret = make_letter(9, headers={"authorization": "x"})
    await context.store.keep([*make_letters(3), secret])
    path = await web.plan("*")

    wrong = await web.start(path, 4, send=["ready"])
    without_reason = await web.start(path, 3, send=["ready"], reason=" ")
    right = await web.post(
        f"{path}/start", PLAN | {"send": ["ready"], "expect": "3", "how": "once"}, hx=True
    )
    await web.sent(path, 3)

    assert (wrong.status_code, without_reason.status_code) == (409, 400)
    assert (right.status_code, right.headers["hx-redirect"]) == (200, path)
    assert "Started: all 3 letters go out now." in await web.text(path)
    assert (await web.status(path)).care.skip == (Verdict.CREDENTIALS,)
    assert (await web.start(path, 3)).status_code == 409


async def test_readers_see_a_plan_and_cannot_touch_it(
    web_as: WebAs, guarded: ServerContext
) -> None:
    await guarded.store.keep(make_letters(3))
    path = await (await web_as(Role.OPERATOR, name="anna")).plan()
    reader = await web_as(Role.READER)

    page = await reader.text(path)

    assert "This needs the role operator." in page
    assert 'name="send"' not in page
    assert (await reader.get("/replays/new")).status_code == 403
    assert (await reader.get(f"{path}/ask/start")).status_code == 403
    for act in ("start", "approve", "pause", "resume", "cancel"):
        assert (await reader.post(f"{path}/{act}", {})).status_code == 403
    assert (await reader.post("/replays", PLAN | {"q": "*"})).status_code == 403


class TestApproval:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(serve=Serve(approve_above=2))

    async def test_a_large_replay_waits_for_somebody_else(
        self, web_as: WebAs, guarded: ServerContext
    ) -> None:
        await guarded.store.keep(make_letters(3))
        anna = await web_as(Role.OPERATOR, name="anna")
        berta = await web_as(Role.OPERATOR, name="berta")
        path = await anna.plan()

        own = await anna.text(path)
        asked = await anna.start(path, 3)
        theirs = await berta.text(path)
        dialog = await berta.text(f"{path}/ask/approve", hx=True)
        refused = await anna.post(f"{path}/approve", {"expect": "3"})
        approved = await berta.post(f"{path}/approve", {"expect": "3", "reason": "fine"})
        after = await anna.text(path)
        asked_again = await anna.text(f"{path}/ask/start", hx=True, shown="true", how="careful")
        started = await anna.start(path, 3)
        await anna.sent(path, 2)

        assert "Ask for approval…" in own
        assert f"{path}/ask/approve" not in own
        assert asked.status_code == 303
        assert "wants to send 3 letters" in theirs
        assert "Approve the replay of 3 letters?" in dialog
        assert (refused.status_code, approved.status_code) == (409, 303)
        assert "Approved by" in after
        assert 'name="expect" value="3"' in asked_again
        assert 'type="checkbox" name="send"' not in after
        assert started.status_code == 303
        assert (await anna.status(path)).approved_by == "berta"

    async def test_nobody_approves_what_is_not_decided_yet(
        self, web_as: WebAs, guarded: ServerContext
    ) -> None:
        old = make_letter(10, expires_at=datetime(2020, 1, 1, tzinfo=UTC))
        await guarded.store.keep([*make_letters(3), old])
        anna = await web_as(Role.OPERATOR, name="anna")
        berta = await web_as(Role.OPERATOR, name="berta")
        path = await anna.plan("*")

        before = await berta.text(path)
        await anna.start(path, 4, send=["ready", "expired"])
        after = await berta.text(path)

        assert f"{path}/ask/approve" not in before
        assert f"{path}/ask/approve" in after

    async def test_small_ones_need_nobody(self, web: Web, context: ServerContext) -> None:
        await context.store.keep(make_letters(2))
        path = await web.plan()

        assert "Ask for approval" not in await web.text(path)
        assert (await web.start(path, 2)).status_code == 303


async def test_a_mailbox_of_the_settings_can_be_the_target(
    web: Web, context: ServerContext
) -> None:
    await context.engine.broker.create(QueueOptions(name="canary"))
    await context.store.keep(make_letters(2))
    path = await web.plan("*", to="canary")

    assert "canary" in await web.text(path)
    assert (await web.status(path)).to == "canary"
