"""Signing in with a provider that lies, and by browsers that did not begin the sign-in."""

import base64
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("joserfc", reason="the extra oidc is not installed")

from joserfc import jwt
from joserfc.jwk import RSAKey

from deadletter.core.errors import ConfigError
from deadletter.server.auth.oidc import open_provider, unpack, url_problem
from deadletter.server.auth.oidc_claims import SignInRefused, identity_of, principal_of
from deadletter.server.context import ServerContext
from deadletter.settings import Oidc, Serve, load_settings
from deadletter.testing.fakes import FakeClock
from server.auth.conftest import SESSION, acts, visiting
from server.auth.oidc_rig import MADE_UP, Client, MadeUp, begin, console, finish, settings_of
from servers.openid import CLIENT

pytestmark = pytest.mark.slow


@pytest.fixture
def provider(clock: FakeClock) -> MadeUp:
    return MadeUp(settings_of(MADE_UP), clock)


@pytest.fixture
async def client(guarded: ServerContext, provider: MadeUp) -> AsyncIterator[Client]:
    async with console(guarded, provider) as found:
        yield found


async def is_in(client: Client) -> bool:
    return (await client.get(SESSION)).status_code == 200


async def test_the_browser_is_sent_with_proof_and_comes_back_signed_in(
    client: Client, provider: MadeUp
) -> None:
    sent = await begin(client, provider, next_="/groups?status=new")
    back = await finish(client, sent)

    assert sent["code_challenge_method"] == "S256"
    assert sent["response_type"] == "code"
    assert {len(sent["state"]), len(sent["nonce"])} == {43}
    assert sent["redirect_uri"] == "http://127.0.0.1:8418/sign-in/callback"
    assert back.headers["location"] == "/groups?status=new"
    assert await is_in(client)
    assert "dlq-sign-in" not in client.cookies


async def test_cookies_are_out_of_reach_of_scripts_and_other_sites(
    client: Client, provider: MadeUp
) -> None:
    left = await client.get("/sign-in/start")
    (cookie,) = left.headers.get_list("set-cookie")

    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Max-Age=600" in cookie


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"state": "another"}, "another sign-in"),
        ({"state": ""}, "another sign-in"),
        ({"iss": "https://evil.example"}, "another provider"),
        ({"code": ""}, "no code"),
        ({"code": "x" * 5_000}, "no code"),
        ({"error": "server_error"}, "answered"),
        ({"error": "access_denied"}, "did not let you in"),
        ({"error": "<script>alert(1)</script>"}, "answered"),
        ({"error": "access_denied", "state": "another"}, "another sign-in"),
    ],
)
async def test_answers_that_do_not_belong_to_the_sign_in_let_nobody_in(
    client: Client, provider: MadeUp, changed: dict[str, str], text: str
) -> None:
    back = await finish(client, await begin(client, provider), **changed)

    assert back.status_code in {400, 403, 503}
    assert text in back.text
    assert "<script>alert" not in back.text
    assert not await is_in(client)


async def test_a_browser_that_did_not_begin_the_sign_in_is_not_signed_in(
    client: Client, provider: MadeUp, guarded: ServerContext
) -> None:
    """An attacker sends somebody a link with a code of the attacker's."""
    sent = await begin(client, provider)
    async with console(guarded, provider) as victim:
        back = await finish(victim, sent)

        assert back.status_code == 400
        assert not await is_in(victim)


async def test_a_link_back_works_once(client: Client, provider: MadeUp) -> None:
    sent = await begin(client, provider)
    first, second = await finish(client, sent), await finish(client, sent)

    assert (first.status_code, second.status_code) == (303, 400)


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("another issuer", {"iss": "https://evil.example"}),
    ("another client", {"aud": "another"}),
    ("several clients, no party", {"aud": [CLIENT, "another"]}),
    ("a party that is another", {"aud": [CLIENT, "another"], "azp": "another"}),
    ("another nonce", {"nonce": "another"}),
    ("no nonce", {"nonce": None}),
    ("no end", {"exp": None}),
    ("no beginning", {"iat": None}),
    ("nobody", {"sub": None}),
    ("an empty subject", {"sub": ""}),
    ("an end that is no time", {"exp": "tomorrow"}),
]


@pytest.mark.parametrize("claims", [one for _, one in HOSTILE], ids=[name for name, _ in HOSTILE])
async def test_id_tokens_for_others_let_nobody_in(
    client: Client, provider: MadeUp, claims: dict[str, Any]
) -> None:
    sent = await begin(client, provider)
    provider.claims |= claims
    back = await finish(client, sent)

    assert back.status_code == 400
    assert not await is_in(client)


def forged(provider: MadeUp, kind: str) -> str:
    """Return an ID token with a signature that proves nothing."""
    good = provider.minted()
    head, body, sign = good.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    match kind:
        case "none":
            return f"{none}.{body}."
        case "no signature":
            return f"{head}.{body}."
        case "secret as key":  # the public key as the secret of a symmetric signature
            header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"first"}').decode()
            text = f"{header.rstrip('=')}.{body}"
            secret = provider.key.as_pem(private=False)
            mac = hmac.new(secret, text.encode(), "sha256").digest()
            return f"{text}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
        case "another key":
            key = RSAKey.generate_key(2048, {"kid": "first"})
            return jwt.encode({"alg": "RS256", "kid": "first"}, claims, key)
        case "unknown key":
            key = RSAKey.generate_key(2048, {"kid": "unknown"})
            return jwt.encode({"alg": "RS256", "kid": "unknown"}, claims, key)
        case "key in the header":
            key = RSAKey.generate_key(2048)
            public = key.as_dict(private=False)
            return jwt.encode({"alg": "RS256", "jwk": public}, claims, key)
        case "changed":
            claims["groups"] = ["dlq-admins", "more"]
            raw = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
            return f"{head}.{raw}.{sign}"
    return kind


@pytest.mark.parametrize(
    "kind",
    [
        *("none", "no signature", "secret as key", "another key", "unknown key"),
        *("key in the header", "changed", "nonsense", "a.b.c", ""),
    ],
)
async def test_forged_id_tokens_let_nobody_in(client: Client, provider: MadeUp, kind: str) -> None:
    sent = await begin(client, provider)
    provider.id_token = forged(provider, kind) or "."
    back = await finish(client, sent)

    assert back.status_code == 400
    assert not await is_in(client)


@pytest.mark.parametrize(
    ("seconds", "lets_in"), [(-350, True), (-400, False), (50, True), (90, False)]
)
async def test_clocks_may_differ_by_a_minute(
    client: Client, provider: MadeUp, clock: FakeClock, seconds: int, lets_in: bool
) -> None:
    sent = await begin(client, provider)
    now = int(clock.now().timestamp()) + seconds
    provider.claims |= {"iat": now, "exp": now + 300}

    assert ((await finish(client, sent)).status_code == 303) == lets_in


async def test_unknown_keys_do_not_make_the_server_ask_again_and_again(
    client: Client, provider: MadeUp
) -> None:
    for _ in range(5):
        sent = await begin(client, provider)
        provider.claims["nonce"] = sent["nonce"]
        provider.id_token = forged(provider, "unknown key")
        await finish(client, sent)

    assert provider.asked.count("/keys") == 1


async def test_userinfo_of_somebody_else_lets_nobody_in(client: Client, provider: MadeUp) -> None:
    sent = await begin(client, provider)
    provider.claims["groups"] = None
    provider.told = {"sub": "another", "groups": ["dlq-admins"]}
    back = await finish(client, sent)

    assert back.status_code == 400
    assert "somebody else" in back.text


async def test_the_id_token_counts_more_than_the_userinfo(client: Client, provider: MadeUp) -> None:
    sent = await begin(client, provider)
    provider.claims["groups"] = None
    provider.told = {"sub": "s-1", "groups": ["dlq-readers"], "email": "boss@example.org"}
    await finish(client, sent)
    whoami = (await client.get(SESSION)).json()

    assert (whoami["name"], whoami["role"]) == ("anna@example.org", "reader")


async def test_failed_sign_ins_are_limited_by_address(
    client: Client, provider: MadeUp, guarded: ServerContext
) -> None:
    answers = [await finish(client, {"state": "x"}) for _ in range(12)]
    sent = await begin(client, provider)
    asked = provider.asked.count("/token")
    blocked = await finish(client, sent)

    assert [one.status_code for one in answers[:10]] == [400] * 10
    assert {one.status_code for one in answers[10:]} == {429}
    assert blocked.status_code == 429
    assert "Try again in" in blocked.text
    assert provider.asked.count("/token") == asked
    assert [one.action for one in await acts(guarded)] == ["block"]


@pytest.mark.parametrize(
    "next_", ["https://evil.example", "//evil.example", "/\\evil.example", "/sign-out", "/api/v1/x"]
)
async def test_nobody_is_led_to_another_site(client: Client, provider: MadeUp, next_: str) -> None:
    back = await finish(client, await begin(client, provider, next_=next_))

    assert back.headers["location"] == "/"


async def test_a_changed_cookie_leads_to_no_other_site(client: Client, provider: MadeUp) -> None:
    sent = await begin(client, provider)
    attempt = unpack(client.cookies["dlq-sign-in"])
    changed = type(attempt)(attempt.state, attempt.nonce, attempt.verifier, "//evil.example")
    client.cookies.set("dlq-sign-in", changed.packed(), domain="127.0.0.1")
    back = await finish(client, sent)

    assert back.headers.get("location", "/") == "/"


@pytest.mark.parametrize("cookie", ["", "x", "é", "bm8", "W10", "A" * 4_000])
async def test_malformed_cookies_are_refused(guarded: ServerContext, cookie: str) -> None:
    provider = MadeUp(settings_of(MADE_UP), FakeClock())
    async with console(guarded, provider) as client:
        header = {b"cookie": f"dlq-sign-in={cookie}".encode()}
        answer = await client.get("/sign-in/callback?state=x&code=c", headers=header)

    assert answer.status_code == 400


async def test_a_session_of_before_ends(client: Client, provider: MadeUp) -> None:
    """A session that somebody else planted is not the one that one is signed in with."""
    await finish(client, await begin(client, provider))
    planted = client.cookies["dlq"]
    provider.claims.clear()
    await finish(client, await begin(client, provider))

    assert client.cookies["dlq"] != planted
    client.cookies.set("dlq", planted, domain="127.0.0.1")
    assert not await is_in(client)


@pytest.mark.parametrize(
    "described",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://idp.example/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"token_endpoint": None},
    ],
)
async def test_a_provider_that_describes_itself_oddly_is_not_used(
    client: Client, provider: MadeUp, described: dict[str, Any]
) -> None:
    provider.described = described
    left = await client.get("/sign-in/start")

    assert left.status_code == 503
    assert "A token works" in left.text


async def test_without_a_provider_there_is_no_such_door(guarded: ServerContext) -> None:
    async with visiting(guarded) as client:
        pages = [await client.get(f"/sign-in/{name}") for name in ("start", "callback")]
        door = await client.get("/sign-in")

    assert [one.status_code for one in pages] == [404, 404]
    assert "or with a token" not in door.text


# Claims and settings as values.


def claims_of(**changed: Any) -> dict[str, Any]:
    return {"iss": MADE_UP, "sub": "s-1", "email": "a@example.org", "groups": ["r"]} | changed


@pytest.mark.parametrize(
    ("claims", "settings", "role"),
    [
        ({}, {"readers": ("r",)}, "reader"),
        ({"groups": ["r", "o"]}, {"readers": ("r",), "operators": ("o",)}, "operator"),
        ({"groups": "r o"}, {"readers": ("r",), "operators": ("o",)}, "operator"),
        ({"realm": {"roles": ["a"]}}, {"admins": ("a",), "role_claim": "realm.roles"}, "admin"),
        (
            {"https://x.example/roles": ["a"]},
            {"admins": ("a",), "role_claim": "https://x.example/roles"},
            "admin",
        ),
    ],
)
def test_roles_follow_from_claims(
    claims: dict[str, Any], settings: dict[str, Any], role: str
) -> None:
    assert identity_of(claims_of(**claims), Oidc(**settings)).role == role


@pytest.mark.parametrize(
    "claims",
    [
        {"groups": []},
        {"groups": None},
        {"groups": {"r": True}},
        {"groups": [["r"]]},
        {"groups": ["R"]},
        {"email": None},
        {"email": 5},
        {"email": "system"},
        {"email": "a\u202eb@example.org"},
        {"email": "x" * 300},
    ],
)
def test_odd_claims_give_nothing(claims: dict[str, Any]) -> None:
    with pytest.raises(SignInRefused):
        identity_of(claims_of(**claims), Oidc(readers=("r",)))


@pytest.mark.parametrize(
    ("value", "sources"),
    [(["orders", "mails", "orders"], ("orders", "mails")), ("orders mails", ("orders", "mails")),
     ("*", ()), (["orders", "*"], ())],
)  # fmt: skip
def test_mailboxes_follow_from_a_claim(value: Any, sources: tuple[str, ...]) -> None:
    settings = Oidc(readers=("r",), sources_claim="mailboxes")

    assert identity_of(claims_of(mailboxes=value), settings).sources == sources


@pytest.mark.parametrize("value", [None, [], "", ["a\nb"], [str(n) for n in range(101)]])
def test_without_the_claim_nobody_sees_everything(value: Any) -> None:
    with pytest.raises(SignInRefused):
        identity_of(claims_of(mailboxes=value), Oidc(readers=("r",), sources_claim="mailboxes"))


def test_people_of_two_providers_are_never_the_same() -> None:
    assert principal_of("https://a", "b") != principal_of("https://ab", "")
    assert principal_of("https://a", "b") == principal_of("https://a", "b")


@pytest.mark.parametrize(
    ("url", "is_good"),
    [
        ("https://idp.example/realms/x", True),
        ("http://127.0.0.1:8080", True),
        ("http://localhost", True),
        ("http://idp.example", False),
        ("https://user:pw@idp.example", False),
        ("ftp://idp.example", False),
        ("idp.example", False),
        ("http://[::1", False),
    ],
)
def test_urls_are_https_or_of_this_machine(url: str, is_good: bool) -> None:
    assert (url_problem(url) is None) == is_good


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"client_id": None}, "client_id"),
        ({"url": None}, "url"),
        ({"url": "http://dlq.example"}, "https"),
        ({"issuer": "http://idp.example"}, "https"),
        ({"readers": (), "operators": (), "admins": ()}, "nobody a role"),
        ({"client_secret_file": "/nowhere/at/all"}, "client_secret_file"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(
    changed: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        open_provider(Serve(oidc=settings_of(MADE_UP, **changed)), FakeClock())


def test_with_access_off_nobody_signs_in() -> None:
    with pytest.raises(ConfigError, match=r"serve\.access"):
        open_provider(Serve(access="off", oidc=settings_of(MADE_UP)), FakeClock())
    assert open_provider(Serve(), FakeClock()) is None


def test_settings_come_from_file_and_environment_and_hide_the_secret(tmp_path: Any) -> None:
    file = tmp_path / "deadletter.toml"
    file.write_text('[serve.oidc]\nissuer = "https://idp.example"\nreaders = ["r"]\n')
    settings = load_settings(
        file, environ={"DLQ_SERVE_OIDC_CLIENT_SECRET": "hunter2hunter2", "DLQ_SERVE_PORT": "1"}
    )

    assert settings.serve.oidc.client_secret == "hunter2hunter2"
    assert (settings.serve.oidc.readers, settings.serve.port) == (("r",), 1)
    assert "hunter2" not in repr(settings)
