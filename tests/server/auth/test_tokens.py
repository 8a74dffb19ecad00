"""Tokens: shown once, stored as a hash, revoked immediately."""
# ruff: noqa: RUF001 -- some names are to look alike

from datetime import timedelta
from pathlib import Path

import pytest

from deadletter.core.access import Role
from deadletter.ports import AccessStore
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import START, FakeClock
from server.auth.conftest import SESSION, TOKENS, Client, acts, bearer
from server.conftest import token

DAY = timedelta(days=1)


async def issue(client: Client, by: str, **wanted: object) -> dict[str, str]:
    answer = await client.post(TOKENS, json=wanted, headers=bearer(by))
    assert answer.status_code == 201, answer.text
    made: dict[str, str] = answer.json()
    return made


async def test_a_token_opens_what_its_role_may(visitor: Client, admin: str) -> None:
    made = await issue(visitor, admin, name="ci", role="operator", sources=["orders"])

    whoami = await visitor.get(SESSION, headers=bearer(made["token"]))
    refused = await visitor.get(TOKENS, headers=bearer(made["token"]))

    assert whoami.json() == {
        "name": "ci",
        "role": "operator",
        "sources": ["orders"],
        "csrf": None,
        "expires_at": None,
    }
    assert refused.status_code == 403


async def test_a_secret_is_shown_once_and_never_kept(
    visitor: Client, admin: str, access: AccessStore, guarded: ServerContext
) -> None:
    made = await issue(visitor, admin, name="ci")
    secret = made["token"].rpartition("_")[2]

    listed = await visitor.get(TOKENS, headers=bearer(admin))
    kept = await access.tokens()

    assert made["token"] == f"dlq_{made['id']}_{secret}"
    assert len(secret) == 64
    assert [one["name"] for one in listed.json()] == ["ci", "root"]
    assert "hash" not in listed.text
    assert secret not in listed.text
    assert secret not in repr(kept)
    assert secret not in repr(await acts(guarded))


async def test_no_answer_with_a_secret_is_kept_to_be_given_again(
    visitor: Client, admin: str, url: str
) -> None:
    twice = {**bearer(admin), "Idempotency-Key": "k1"}
    made = [await visitor.post(TOKENS, json={"name": "ci"}, headers=twice) for _ in range(2)]

    assert [answer.status_code for answer in made] == [201, 409]
    first = made[0].json()["token"]
    assert first.rpartition("_")[2] not in made[1].text
    folder = Path(url.removeprefix("sqlite:///")).parent
    on_disk = b"".join(file.read_bytes() for file in folder.iterdir())
    for shown in (admin, first):
        assert shown.rpartition("_")[2].encode() not in on_disk


async def test_every_act_is_in_the_audit(
    visitor: Client, admin: str, guarded: ServerContext
) -> None:
    made = await issue(visitor, admin, name="ci", sources=["a", "b"], reason="for the pipeline")
    await visitor.delete(
        f"{TOKENS}/{made['id']}", params={"reason": "leaked"}, headers=bearer(admin)
    )

    told = [(e.actor, e.action, e.target, e.reason) for e in await acts(guarded)]

    assert told == [
        ("root", "issue", f"token:{made['id']}", "for the pipeline"),
        ("root", "revoke", f"token:{made['id']}", "leaked"),
    ]
    assert (await acts(guarded))[0].detail == "ci; reader; a, b"


async def test_a_revoked_token_is_nobodys(visitor: Client, admin: str) -> None:
    made = await issue(visitor, admin, name="ci")
    assert (await visitor.get(SESSION, headers=bearer(made["token"]))).status_code == 200

    gone = await visitor.delete(f"{TOKENS}/{made['id']}", headers=bearer(admin))
    again = await visitor.delete(f"{TOKENS}/{made['id']}", headers=bearer(admin))
    used = await visitor.get(SESSION, headers=bearer(made["token"]))

    assert (gone.status_code, again.status_code, used.status_code) == (204, 404, 401)


async def test_a_token_ends_when_it_says(visitor: Client, admin: str, clock: FakeClock) -> None:
    until = (START + DAY).isoformat()
    made = await issue(visitor, admin, name="ci", expires_at=until)

    clock.advance(DAY.total_seconds() - 1)
    before = await visitor.get(SESSION, headers=bearer(made["token"]))
    clock.advance(1)
    after = await visitor.get(SESSION, headers=bearer(made["token"]))
    unknown = await visitor.get(SESSION, headers=bearer("dlq_x_" + "0" * 64))

    assert (before.status_code, after.status_code) == (200, 401)
    assert after.content == unknown.content


async def test_use_is_remembered(visitor: Client, admin: str, clock: FakeClock) -> None:
    clock.advance(3 * 3600 + 100)

    listed = await visitor.get(TOKENS, headers=bearer(admin))
    again = await visitor.get(TOKENS, headers=bearer(admin))

    # What the first request saw was read before it was remembered.
    assert {len(listed.json()), len(again.json())} == {1}
    assert again.json()[0]["last_used_at"] == "2030-01-01T03:00:00Z"


IMPOSSIBLE: list[dict[str, object]] = [
    {"name": ""},
    {"name": "  "},
    {"name": "a\nb"},
    {"name": "x" * 201},
    {"name": "x", "role": "god"},
    {"name": "x", "sources": [""]},
    {"name": "x", "sources": ["a\u0000"]},
    {"name": "x", "sources": ["a"] * 101},
    {"name": "x", "expires_at": "2020-01-01T00:00:00Z"},
    {"name": "x", "expires_at": "2040-01-01T00:00:00"},
    {"name": "x", "id": "mine"},
    {"role": "reader"},
]


async def test_invalid_token_requests_are_rejected(
    visitor: Client, admin: str, access: AccessStore
) -> None:
    for wanted in IMPOSSIBLE:
        answer = await visitor.post(TOKENS, json=wanted, headers=bearer(admin))

        assert answer.status_code == 400, wanted
        assert answer.headers["content-type"] == "application/problem+json"
    assert len(await access.tokens()) == 1


class TestALimitedAdministrator:
    """A limited administrator, who must not gain access to other mailboxes."""

    @pytest.fixture
    async def limited(self, guarded: ServerContext) -> str:
        return await token(guarded, Role.ADMIN, "orders", "mails", name="limited")

    async def test_makes_no_token_that_sees_more(self, visitor: Client, limited: str) -> None:
        for sources in ([], ["orders", "other"], ["other"]):
            wanted = {"name": "limited/x", "sources": sources}
            answer = await visitor.post(TOKENS, json=wanted, headers=bearer(limited))

            assert answer.status_code == 403, sources

    async def test_makes_one_that_sees_as_much(self, visitor: Client, limited: str) -> None:
        name = "limited/x"
        made = await issue(visitor, limited, name=name, role="admin", sources=["mails"])

        listed = await visitor.get(TOKENS, headers=bearer(made["token"]))

        assert [one["name"] for one in listed.json()] == [name]

    async def test_does_not_learn_of_the_others(
        self, visitor: Client, limited: str, admin: str
    ) -> None:
        other = admin.split("_")[1]

        listed = await visitor.get(TOKENS, headers=bearer(limited))
        theirs = await visitor.delete(f"{TOKENS}/{other}", headers=bearer(limited))
        nobodys = await visitor.delete(f"{TOKENS}/nosuch", headers=bearer(limited))

        assert [one["name"] for one in listed.json()] == ["limited"]
        assert theirs.status_code == nobodys.status_code == 404
        assert theirs.text.replace(other, "nosuch") == nobodys.text
        assert (await visitor.get(SESSION, headers=bearer(admin))).status_code == 200


async def test_a_name_that_looks_like_another_is_refused(visitor: Client, admin: str) -> None:
    await issue(visitor, admin, name="ops")
    codes = {}
    for name in ("Ops", "орѕ", "0ps", "system", "аnna", "anna\u200b", "dlq serve"):
        answer = await visitor.post(TOKENS, json={"name": name}, headers=bearer(admin))
        codes[name] = answer.status_code

    assert set(codes.values()) == {400, 409}, codes
    assert [codes[name] for name in ("Ops", "орѕ", "0ps")] == [409] * 3
    await issue(visitor, admin, name="ops")  # the same again is another of theirs
