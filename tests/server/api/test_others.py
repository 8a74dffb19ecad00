"""Limited callers cannot see or change other mailboxes."""

from typing import Any

import pytest
from msgspec.structs import replace

from deadletter.core.access import Role
from deadletter.core.campaign import CampaignState
from deadletter.ports import QueueOptions
from deadletter.server.context import ServerContext
from office.making import make_letter
from office.test_archive import archive_of
from server.api.conftest import Api, Caller
from server.conftest import token

REPLAYS = "/api/v1/replays"
QUEUES = "/api/v1/queues"
GROUPS = "/api/v1/groups"
TOKENS = "/api/v1/tokens"


@pytest.fixture
async def two_mailboxes(guarded: ServerContext) -> None:
    """Letters of two mailboxes, one of which the caller may not see."""
    broker = guarded.engine.broker
    for name in ("mails", "mails-dlq", "orders-dlq"):
        await broker.create(QueueOptions(name=name))
    await broker.create(QueueOptions(name="orders", dead_queue="orders-dlq"))
    await guarded.store.keep([make_letter(1), make_letter(2, source="mails")])


@pytest.mark.usefixtures("two_mailboxes")
class TestReplays:
    """The owners of replays."""

    async def test_one_of_others_is_answered_like_none(
        self, guarded_api: Api, caller: Caller
    ) -> None:
        boss = await caller(Role.OPERATOR, name="boss")
        own = await caller(Role.OPERATOR, "mails", name="mailer")
        made = await guarded_api.post(
            f"{REPLAYS}/plan", json={"query": "source:orders"}, headers=boss
        )
        theirs = made.json()["replay"]["id"]
        nobodys = theirs[:-4] + ("0000" if theirs[-4:] != "0000" else "1111")

        for action, method in (("", "GET"), ("/report", "GET"), ("/cancel", "POST")):
            told = []
            for name in (theirs, nobodys, theirs[:13], "ffffffff"):
                path = f"{REPLAYS}/{name}{action}"
                given: dict[str, Any] = {"json": {}} if method == "POST" else {}
                answer = await guarded_api.request(method, path, headers=own, **given)
                told.append((answer.status_code, answer.json()["detail"].replace(name, "…")))
            assert len(set(told)) == 1, told
            assert told[0][0] == 404

    async def test_the_beginning_of_an_id_is_looked_for_among_ones_own(
        self, guarded_api: Api, caller: Caller
    ) -> None:
        boss = await caller(Role.OPERATOR, name="boss")
        own = await caller(Role.OPERATOR, "mails", name="mailer")
        for headers in (boss, own):
            wish = {"query": "source:mails"}
            made = await guarded_api.post(f"{REPLAYS}/plan", json=wish, headers=headers)
        mine = made.json()["replay"]["id"]

        found = await guarded_api.get(f"{REPLAYS}/{mine[:2]}", headers=own)

        assert found.status_code == 200
        assert found.json()["id"] == mine


@pytest.mark.usefixtures("two_mailboxes")
class TestNames:
    """Names identify callers in the audit and own replays, so they cannot be reused."""

    async def test_limited_users_create_tokens_only_under_their_own_name(
        self, guarded_api: Api, caller: Caller
    ) -> None:
        limited = await caller(Role.ADMIN, "mails", name="mail-team")

        async def asked(name: str) -> int:
            body = {"name": name, "role": "operator", "sources": ["mails"]}
            return (await guarded_api.post(TOKENS, json=body, headers=limited)).status_code

        assert await asked("boss") == 403
        assert await asked("mail-teams") == 403
        assert await asked("dlq serve") == 403
        assert await asked("mail-team") == 201
        assert await asked("mail-team/ci") == 201

    async def test_one_name_does_not_stand_for_two_views(
        self, guarded_api: Api, caller: Caller
    ) -> None:
        root = await caller(Role.ADMIN, name="root")
        body = {"name": "ci", "role": "reader"}

        first = await guarded_api.post(TOKENS, json=body, headers=root)
        same = await guarded_api.post(TOKENS, json=body, headers=root)
        less = await guarded_api.post(TOKENS, json={**body, "sources": ["mails"]}, headers=root)

        assert (first.status_code, same.status_code) == (201, 201)
        assert less.status_code == 409

    async def test_an_answer_is_not_given_to_a_namesake_who_sees_less(
        self, guarded_api: Api, guarded: ServerContext
    ) -> None:
        # Such as were made before names were looked at, or by two at once.
        wish = {"query": "*"}
        plans = []
        for sources in ((), ("mails",)):
            shown = await token(guarded, Role.OPERATOR, *sources, name="ci")
            headers = {"authorization": f"Bearer {shown}", "idempotency-key": "k"}
            answer = await guarded_api.post(f"{REPLAYS}/plan", json=wish, headers=headers)
            plans.append(answer.json()["plan"]["total"])

        assert plans == [2, 1]


@pytest.mark.usefixtures("two_mailboxes")
class TestMailboxes:
    """Callers cannot change mailboxes that they may not see."""

    async def test_dead_messages_cannot_be_led_into_them(
        self, guarded_api: Api, caller: Caller
    ) -> None:
        own = await caller(Role.ADMIN, "mails", "new")
        changes = []
        for dead in ("orders-dlq", "nothing"):
            made = await guarded_api.post(
                QUEUES, json={"name": "new", "dead_queue": dead}, headers=own
            )
            changed = await guarded_api.patch(
                f"{QUEUES}/mails", json={"dead_queue": dead}, headers=own
            )
            changes.append(
                [
                    (one.status_code, one.json()["detail"].replace(dead, "…"))
                    for one in (made, changed)
                ]
            )

        assert changes[0] == changes[1]  # theirs, and none at all
        assert changes[0][0][0] == changes[0][1][0] == 400

    async def test_nor_is_theirs_taken_away_by_force(
        self, guarded_api: Api, guarded: ServerContext, caller: Caller
    ) -> None:
        own = await caller(Role.ADMIN, "orders-dlq")
        root = await caller(Role.ADMIN)
        path = f"{QUEUES}/orders-dlq?force=true"

        refused = await guarded_api.delete(path, headers=own)
        told = refused.json()["detail"]

        assert refused.status_code == 409
        assert "orders " not in told
        assert (await guarded_api.delete(path, headers=root)).status_code == 200


@pytest.mark.usefixtures("two_mailboxes")
class TestGroups:
    """Groups of other mailboxes, and prefixes of fingerprints."""

    async def test_a_group_is_found_by_its_beginning_among_ones_own(
        self, guarded_api: Api, guarded: ServerContext, caller: Caller
    ) -> None:
        own = await caller(Role.READER, "mails")
        (mine,) = await guarded.store.groups(source="mails")
        (other,) = await guarded.store.groups(source="orders")

        whole = await guarded_api.get(f"{GROUPS}/{mine.fingerprint}", headers=own)
        begun = await guarded_api.get(f"{GROUPS}/{mine.fingerprint[:-2]}", headers=own)
        told = [
            (answer.status_code, answer.json()["detail"].replace(name, "…"))
            for name in (other.fingerprint, other.fingerprint[:-1] + "!")
            for answer in [await guarded_api.get(f"{GROUPS}/{name}", headers=own)]
        ]

        assert whole.json()["source"] == begun.json()["source"] == "mails"
        assert told[0] == told[1]
        assert told[0][0] == 404

    async def test_an_imported_letter_does_not_count_in_a_group_of_others(
        self, guarded_api: Api, guarded: ServerContext, caller: Caller
    ) -> None:
        own = await caller(Role.ADMIN, "mails")
        (other,) = await guarded.store.groups(source="orders")
        letter = make_letter(77, source="mails")
        forged = replace(letter, head=replace(letter.head, fingerprint=other.fingerprint))
        lines = archive_of(forged).getvalue()

        taken = await guarded_api.post("/api/v1/import", content=lines, headers=own)

        assert taken.status_code == 200, taken.text
        assert taken.json()["added"] == 1
        (after,) = await guarded.store.groups(named=other.fingerprint)
        assert after.total == other.total


async def test_a_start_that_did_not_reach_the_ledger_can_be_repeated(
    api: Api, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deadletter.core.errors import Unavailable

    await context.store.keep([make_letter(1)])
    await context.engine.broker.create(QueueOptions(name="orders"))
    made = await api.post(f"{REPLAYS}/plan", json={"query": "*"})
    path = f"{REPLAYS}/{made.json()['replay']['id']}"

    async def away(*args: object, **options: object) -> object:
        raise Unavailable("gone for a moment")

    with monkeypatch.context() as patched:
        patched.setattr(context.engine.ledger, "begin", away)
        failed = await api.post(f"{path}/start", json={})
    state = (await api.get(path)).json()["state"]
    again = await api.post(f"{path}/start", json={})

    assert failed.status_code == 503
    assert state == CampaignState.PLANNED
    assert again.status_code == 200
