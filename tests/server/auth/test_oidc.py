"""Signing in with a real OpenID provider: who gets in, as whom, and what is kept."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

pytest.importorskip("joserfc", reason="the extra oidc is not installed")

from deadletter.core.access import Role
from deadletter.ports import Engine
from deadletter.server.auth.oidc import OpenIdProvider
from deadletter.server.context import ServerContext
from deadletter.settings import Settings
from deadletter.system import SystemClock
from deadletter.wiring.engines import open_engine
from server.auth.conftest import SESSION, TOKENS, acts
from server.auth.oidc_rig import Client, come_back, console, settings_of
from server.conftest import context_of, token
from servers import OpenId

pytestmark = pytest.mark.slow


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    engine = await open_engine(url)
    yield engine
    await engine.close()


@pytest.fixture
def guarded(engine: Engine, settings: Settings) -> ServerContext:
    """A server context with access on and the clock of the provider."""
    return context_of(engine, settings=settings, guarded=True)


@pytest.fixture
async def provider(openid_server: OpenId) -> OpenIdProvider:
    return OpenIdProvider(settings_of(openid_server.url), SystemClock())


@pytest.fixture
async def client(guarded: ServerContext, provider: OpenIdProvider) -> AsyncIterator[Client]:
    async with console(guarded, provider) as found:
        yield found


@pytest.mark.parametrize(
    ("login", "role"), [("anna", Role.ADMIN), ("olaf", Role.OPERATOR), ("rita", Role.READER)]
)
async def test_people_get_the_role_of_their_groups(client: Client, login: str, role: Role) -> None:
    back = await come_back(client, login)
    whoami = (await client.get(SESSION)).json()

    assert (back.status_code, back.headers["location"]) == (303, "/system")
    assert (whoami["name"], whoami["role"]) == (f"{login}@example.org", role)
    assert whoami["sources"] == []


async def test_they_see_the_mailboxes_that_the_provider_names(
    guarded: ServerContext, openid_server: OpenId
) -> None:
    settings = settings_of(openid_server.url, sources_claim="mailboxes")
    async with console(guarded, OpenIdProvider(settings, SystemClock())) as client:
        refused = await come_back(client, "anna")
        await come_back(client, "olaf")
        whoami = (await client.get(SESSION)).json()

    assert refused.status_code == 403
    assert "names no mailbox" in refused.text
    assert whoami["sources"] == ["orders"]


async def test_without_a_group_of_the_console_nobody_gets_in(
    client: Client, guarded: ServerContext
) -> None:
    back = await come_back(client, "nobody")

    assert back.status_code == 403
    assert "none of your groups gives a role" in back.text
    assert (await client.get(SESSION)).status_code == 401
    assert await guarded.access.tokens() == []  # type: ignore[union-attr]


async def test_an_address_that_is_not_verified_is_nobodys(client: Client) -> None:
    back = await come_back(client, "eve")

    assert back.status_code == 403
    assert "has not verified the address" in back.text


async def test_the_audit_names_them_and_the_session_is_short(
    client: Client, guarded: ServerContext, provider: OpenIdProvider
) -> None:
    await come_back(client, "anna")
    (session,) = (await client.get("/api/v1/sessions")).json()
    (known,) = (await client.get(TOKENS)).json()

    assert known["id"].startswith("sso")
    assert provider.settings.issuer in known["created_by"]
    lasts = guarded.clock.now() - _time(session["created_at"])
    assert lasts.total_seconds() < 60
    length = _time(session["expires_at"]) - _time(session["created_at"])
    assert length.total_seconds() == pytest.approx(8 * 3600)
    assert [one.action for one in await acts(guarded)] == ["issue", "sign-in"]
    assert "anna@example.org" in (await acts(guarded))[0].detail


async def test_a_second_sign_in_is_the_same_person(
    client: Client, guarded: ServerContext, provider: OpenIdProvider
) -> None:
    await come_back(client, "anna")
    async with console(guarded, provider) as other:
        await come_back(other, "anna")
        sessions = (await other.get("/api/v1/sessions")).json()

    assert {one["token_id"] for one in sessions} == {sessions[0]["token_id"]}
    assert len(sessions) == 2
    assert len(await guarded.access.tokens()) == 1  # type: ignore[union-attr]


async def test_other_groups_end_the_earlier_sessions(
    client: Client, guarded: ServerContext, openid_server: OpenId
) -> None:
    await come_back(client, "olaf")
    fewer = settings_of(openid_server.url, operators=(), readers=("staff",))
    async with console(guarded, OpenIdProvider(fewer, SystemClock())) as other:
        await come_back(other, "olaf")
        now = (await other.get(SESSION)).json()

    assert now["role"] == "reader"
    assert (await client.get(SESSION)).status_code == 401


async def test_signing_out_ends_the_session_here(client: Client) -> None:
    await come_back(client, "anna")
    proof = (await client.get(SESSION)).json()["csrf"]

    out = await client.post(
        "/sign-out", data={"csrf": proof}, headers={"origin": "http://127.0.0.1:8418"}
    )

    assert (out.status_code, out.headers["location"]) == (303, "/sign-in")
    assert (await client.get(SESSION)).status_code == 401


async def test_a_revoked_person_is_out_at_once(client: Client, guarded: ServerContext) -> None:
    await come_back(client, "rita")
    (known,) = await guarded.access.tokens()  # type: ignore[union-attr]
    await guarded.access.revoke(known.id)  # type: ignore[union-attr]

    assert (await client.get(SESSION)).status_code == 401


async def test_nobody_takes_the_name_of_a_token(client: Client, guarded: ServerContext) -> None:
    await token(guarded, Role.READER, name="Anna@example.org")

    back = await come_back(client, "anna")

    assert back.status_code == 403
    assert "looks like the name of one" in back.text.replace("\n", " ")


async def test_a_client_without_a_secret_signs_in_by_its_proof_alone(
    guarded: ServerContext, openid_server: OpenId
) -> None:
    settings = settings_of(openid_server.url, client_id="deadletter-public", client_secret=None)
    async with console(guarded, OpenIdProvider(settings, SystemClock())) as client:
        back = await come_back(client, "anna")

    assert back.status_code == 303


async def test_a_wrong_secret_lets_nobody_in(guarded: ServerContext, openid_server: OpenId) -> None:
    settings = settings_of(openid_server.url, client_secret="another")
    async with console(guarded, OpenIdProvider(settings, SystemClock())) as client:
        back = await come_back(client, "anna")

    assert back.status_code == 400
    assert "refused the code" in back.text


async def test_new_keys_of_the_provider_are_fetched(
    client: Client, openid_server: OpenId, provider: OpenIdProvider
) -> None:
    first = await come_back(client, "anna")
    assert provider._keys is not None
    at, known = provider._keys
    await asyncio.to_thread(openid_server.restart)
    provider._keys = (at - 60, known)  # a minute later

    second = await come_back(client, "anna")

    assert (first.status_code, second.status_code) == (303, 303)
    assert provider._keys[1]["keys"][0]["kid"] != known["keys"][0]["kid"]


async def test_while_the_provider_is_away_tokens_still_work(
    guarded: ServerContext, openid_server: OpenId, provider: OpenIdProvider
) -> None:
    shown = await token(guarded, Role.ADMIN, name="root")
    await asyncio.to_thread(openid_server.stop)
    try:
        async with console(guarded, provider) as client:  # it starts all the same
            door = await client.get("/sign-in")
            left = await client.get("/sign-in/start")
            signed_in = await client.post(
                "/sign-in", data={"token": shown}, headers={"origin": "http://127.0.0.1:8418"}
            )
            whoami = await client.get(SESSION)
    finally:
        await asyncio.to_thread(openid_server.start)

    assert "Sign in with the company" in door.text
    assert left.status_code == 503
    assert "does not answer" in left.text
    assert 'name="token"' in left.text
    assert (signed_in.status_code, whoami.status_code) == (303, 200)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
