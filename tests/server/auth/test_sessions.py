"""Sessions of browsers: HttpOnly cookies and CSRF tokens."""

from datetime import timedelta

import pytest

from deadletter.core.access import Identity, Role, Session
from deadletter.core.letter import By
from deadletter.ports import AccessStore
from deadletter.server.auth.keys import Keys
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock
from server.auth.conftest import SESSION, TOKENS, Client, acts, bearer, sign_in, visiting
from server.conftest import token

HOURS = 3600.0


async def test_a_session_signs_in_reads_changes_and_signs_out(
    visitor: Client, admin: str, guarded: ServerContext
) -> None:
    proof = await sign_in(visitor, admin)
    made = await visitor.post(TOKENS, json={"name": "ci"}, headers=proof)
    listed = await visitor.get(TOKENS)
    whoami = (await visitor.get(SESSION)).json()
    out = await visitor.delete(SESSION, headers=proof)

    assert (made.status_code, listed.status_code, out.status_code) == (201, 200, 204)
    assert (whoami["name"], whoami["csrf"]) == ("root", proof["X-CSRF-Token"])
    assert not visitor.cookies
    assert [(e.actor, e.action) for e in await acts(guarded)] == [
        ("root", "sign-in"),
        ("root", "issue"),
        ("root", "sign-out"),
    ]


async def test_a_session_that_was_ended_is_over_whoever_kept_its_cookie(
    visitor: Client, admin: str
) -> None:
    proof = await sign_in(visitor, admin)
    kept = dict(visitor.cookies)
    await visitor.delete(SESSION, headers=proof)

    visitor.cookies.update(kept)

    assert (await visitor.get(SESSION)).status_code == 401


async def test_the_cookie_is_for_this_server_alone(
    visitor: Client, admin: str, guarded: ServerContext
) -> None:
    plain = await visitor.post(SESSION, json={"token": admin})
    async with visiting(guarded, "https://dlq.example") as client:
        encrypted = await client.post(SESSION, json={"token": admin})
        again = await client.get(SESSION)

    name, _, rest = plain.headers["set-cookie"].partition("=")
    assert name == "dlq"
    assert {"httponly", "samesite=lax", "path=/"} <= _flags(rest)
    assert "secure" not in _flags(rest)  # it would not come back over http
    name, _, rest = encrypted.headers["set-cookie"].partition("=")
    assert name == "__Host-dlq"
    assert {"httponly", "samesite=lax", "path=/", "secure"} <= _flags(rest)
    assert not any(flag.startswith("domain") for flag in _flags(rest))
    assert again.status_code == 200


async def test_a_session_ends_with_its_hours(
    visitor: Client, admin: str, clock: FakeClock, guarded: ServerContext
) -> None:
    await sign_in(visitor, admin)

    clock.advance(guarded.settings.serve.session_hours * HOURS - 1)
    before = await visitor.get(SESSION)
    clock.advance(1)
    after = await visitor.get(SESSION)

    assert (before.status_code, after.status_code) == (200, 401)


async def test_a_session_does_not_outlive_its_token(
    visitor: Client, guarded: ServerContext, access: AccessStore, clock: FakeClock
) -> None:
    keys = Keys(access, guarded.store, clock)
    _, short = await keys.issue(
        Identity(name="x", role=Role.READER),
        By("test"),
        expires_at=clock.now() + timedelta(minutes=5),
    )
    await sign_in(visitor, short)

    clock.advance(300)

    assert (await visitor.get(SESSION)).status_code == 401


async def test_revoking_a_token_ends_its_sessions(
    visitor: Client, guarded: ServerContext, admin: str
) -> None:
    shown = await token(guarded, Role.READER)
    await sign_in(visitor, shown)
    assert (await visitor.get(SESSION)).status_code == 200

    async with visiting(guarded) as other:
        await other.delete(f"{TOKENS}/{shown.split('_')[1]}", headers=bearer(admin))

    assert (await visitor.get(SESSION)).status_code == 401


async def test_a_token_revoked_while_somebody_signs_in_signs_nobody_in(
    visitor: Client, admin: str, access: AccessStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = access.open_session

    async def too_late(session: Session) -> None:
        await access.revoke(session.token_id)
        await opening(session)

    monkeypatch.setattr(access, "open_session", too_late)

    answer = await visitor.post(SESSION, json={"token": admin})

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


async def test_with_a_token_there_is_nothing_to_sign_out_of(
    visitor: Client, admin: str, guarded: ServerContext
) -> None:
    answer = await visitor.delete(SESSION, headers=bearer(admin))

    assert answer.status_code == 204
    assert await acts(guarded) == []
    assert (await visitor.get(SESSION, headers=bearer(admin))).status_code == 200


class TestWithAccessOff:
    """With access off, only local requests are answered."""

    async def test_everybody_is_the_local_administrator(self, api: Client) -> None:
        whoami = (await api.get(SESSION)).json()

        assert (whoami["name"], whoami["role"]) == ("local", "admin")

    async def test_there_are_no_tokens_and_no_sessions(self, api: Client) -> None:
        listed = await api.get(TOKENS)
        signed_in = await api.post(SESSION, json={"token": "x"})

        assert (listed.status_code, signed_in.status_code) == (409, 409)

    async def test_a_name_that_leads_here_is_not_enough(self, api: Client) -> None:
        for host in ("evil.example", "", "localhost.evil.example", "10.0.0.1", "[x"):
            answer = await api.get(SESSION, headers={"Host": host})

            is_host = host not in {"", "[x"}
            assert answer.status_code == (403 if is_host else 400), host

    async def test_nor_is_it_for_what_needs_no_role(self, api: Client) -> None:
        for path in (
            *("/health", "/health/live", "/health/ready", "/metrics"),
            *("/api/openapi.json", "/v1/queues.list", "/nowhere", "/api/v1/nowhere"),
        ):
            answer = await api.get(path, headers={"Host": "evil.example"})

            assert answer.status_code == 403, path
            assert answer.headers["x-content-type-options"] == "nosniff"

    async def test_this_machine_is(self, api: Client) -> None:
        for host in ("127.0.0.1:8418", "[::1]:1", "LOCALHOST:8418"):
            answer = await api.get(SESSION, headers={"Host": host})

            assert answer.status_code == 200, host

    async def test_other_sites_change_nothing(self, api: Client) -> None:
        for origin in ("https://evil.example", "null", "http://localhost:1", "http://["):
            answer = await api.delete(SESSION, headers={"Origin": origin})

            assert answer.status_code == 403, origin

    async def test_our_own_pages_do(self, api: Client) -> None:
        answer = await api.delete(SESSION, headers={"Origin": "http://127.0.0.1"})

        assert answer.status_code == 204


def _flags(cookie: str) -> set[str]:
    return {part.strip().lower() for part in cookie.split(";")[1:]}
