"""Sessions listed and ended: one's own, and by administrators those of others."""

from deadletter.core.access import Role
from deadletter.server.context import ServerContext
from server.auth.conftest import SESSION, Client, acts, bearer, sign_in, visiting
from server.conftest import token

SESSIONS = "/api/v1/sessions"


async def test_everybody_sees_their_own_sessions_and_nobody_elses(
    guarded: ServerContext, admin: str
) -> None:
    shown = await token(guarded, Role.READER, name="rita")
    async with visiting(guarded) as one, visiting(guarded) as other:
        await sign_in(one, shown)
        await sign_in(other, admin)
        (own,) = (await one.get(SESSIONS)).json()
        everything = (await other.get(SESSIONS)).json()

    assert (own["name"], own["role"], own["current"]) == ("rita", "reader", True)
    assert {(line["name"], line["current"]) for line in everything} == {
        ("rita", False),
        ("root", True),
    }


async def test_the_list_has_neither_hashes_nor_proofs(visitor: Client, admin: str) -> None:
    proof = await sign_in(visitor, admin)
    answer = await visitor.get(SESSIONS)

    assert proof["X-CSRF-Token"] not in answer.text
    assert dict(visitor.cookies)["dlq"] not in answer.text
    assert all(len(line["id"]) == 12 for line in answer.json())


async def test_an_administrator_ends_a_session_and_the_audit_says_so(
    guarded: ServerContext, admin: str
) -> None:
    shown = await token(guarded, Role.READER, name="rita")
    async with visiting(guarded) as one, visiting(guarded) as other:
        await sign_in(one, shown)
        (line,) = (await other.get(SESSIONS, headers=bearer(admin))).json()
        path = f"{SESSIONS}/{line['id']}"
        ended = await other.delete(path, headers=bearer(admin), params={"reason": "left"})
        again = await other.delete(path, headers=bearer(admin))
        after = await one.get(SESSION)

    assert (ended.status_code, again.status_code, after.status_code) == (204, 404, 401)
    act = (await acts(guarded))[-1]
    assert (act.actor, act.action, act.reason) == ("root", "end-session", "left")
    assert "rita" in act.detail


async def test_nobody_ends_a_session_that_they_do_not_see(
    guarded: ServerContext, admin: str
) -> None:
    limited = await token(guarded, Role.ADMIN, "orders", name="boss-of-orders")
    async with visiting(guarded) as one, visiting(guarded) as other:
        await sign_in(one, admin)
        (line,) = (await other.get(SESSIONS, headers=bearer(admin))).json()
        listed = await other.get(SESSIONS, headers=bearer(limited))
        ended = await other.delete(f"{SESSIONS}/{line['id']}", headers=bearer(limited))
        still = await one.get(SESSION)

    assert listed.json() == []
    assert (ended.status_code, still.status_code) == (404, 200)


async def test_ending_a_session_by_a_session_needs_its_proof(visitor: Client, admin: str) -> None:
    proof = await sign_in(visitor, admin)
    (line,) = (await visitor.get(SESSIONS)).json()
    path = f"{SESSIONS}/{line['id']}"

    refused = await visitor.delete(path)
    ended = await visitor.delete(path, headers=proof)

    assert (refused.status_code, ended.status_code) == (403, 204)
    assert (await visitor.get(SESSION)).status_code == 401
