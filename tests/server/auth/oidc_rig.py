"""A console whose people sign in with an OpenID provider: a real one, or one made up."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from litestar import Litestar
from litestar.testing import AsyncTestClient
from msgspec.structs import replace

from deadletter.ports import Clock
from deadletter.server.app import build
from deadletter.server.auth.oidc import OpenIdProvider, ProviderAway
from deadletter.server.context import ServerContext
from deadletter.settings import Oidc
from servers.openid import CLIENT, CONSOLE, SECRET

Client = AsyncTestClient[Litestar]

MADE_UP = "https://idp.example"
HTML = {"accept": "text/html", "sec-fetch-site": "same-origin"}
_STEPS = 20


def settings_of(issuer: str, /, **changed: Any) -> Oidc:
    """Return the settings of a console that knows some groups."""
    known: dict[str, Any] = {
        "issuer": issuer,
        "client_id": CLIENT,
        "client_secret": SECRET,
        "url": CONSOLE,
        "name": "the company",
        "readers": ("dlq-readers",),
        "operators": ("dlq-operators",),
        "admins": ("dlq-admins",),
    }
    return Oidc(**(known | changed))


@asynccontextmanager
async def console(context: ServerContext, provider: OpenIdProvider) -> AsyncIterator[Client]:
    """Open a browser without scripts at a console with this provider."""
    app = build(replace(context, oidc=provider))
    async with AsyncTestClient(app, base_url=CONSOLE, raise_server_exceptions=False) as client:
        client.follow_redirects = False
        client.headers.update(HTML)
        yield client


async def come_back(client: Client, login: str, *, next_: str = "/system") -> httpx.Response:
    """Leave for the real provider, sign in there, and come back; return the answer."""
    left = await client.get("/sign-in/start", params={"next": next_})
    assert left.status_code == 303, left.text
    return await client.get(await signed_in_there(left.headers["location"], login))


async def signed_in_there(url: str, login: str) -> str:
    """Sign in with the real provider; return the path and query that lead back."""
    async with httpx.AsyncClient() as browser:
        answer = await browser.get(url)
        for _ in range(_STEPS):
            location: str = answer.headers.get("location", "")
            if location.startswith(CONSOLE):
                return location.removeprefix(CONSOLE)
            if location:
                answer = await browser.get(str(answer.url.join(location)))
                continue
            assert answer.status_code == 200, answer.text
            prompt = "login" if 'name="login"' in answer.text else "consent"
            form = {"prompt": prompt, "login": login, "password": "any"}
            answer = await browser.post(answer.url, data=form)
    raise AssertionError("the provider did not lead back")


@cache
def _key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "first", "use": "sig", "alg": "RS256"})


class MadeUp(OpenIdProvider):
    """A provider that says what a test wants, also what no real one would."""

    def __init__(self, settings: Oidc, clock: Clock) -> None:
        super().__init__(settings, clock)
        self.clock = clock
        self.key = _key()
        self.away = ""
        self.described: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        self.told: dict[str, Any] = {}  # by the userinfo endpoint
        self.id_token: str | None = None
        self.asked: list[str] = []

    def description(self) -> dict[str, Any]:
        """Return what it says of itself."""
        return {
            "issuer": MADE_UP,
            "authorization_endpoint": f"{MADE_UP}/authorize",
            "token_endpoint": f"{MADE_UP}/token",
            "jwks_uri": f"{MADE_UP}/keys",
            "userinfo_endpoint": f"{MADE_UP}/me",
        } | self.described

    async def _ask(self, method: str, url: str, **_: Any) -> tuple[int, bytes]:
        path = urlsplit(url).path
        self.asked.append(path)
        if self.away:
            raise ProviderAway(self.away)
        answers: dict[str, Callable[[], Any]] = {
            "/.well-known/openid-configuration": self.description,
            "/token": lambda: {"id_token": self.id_token or self.minted(), "access_token": "a"},
            "/keys": lambda: KeySet([self.key]).as_dict(private=False),
            "/me": lambda: self.told,
        }
        return 200, json.dumps(answers[path]()).encode()

    def minted(self, **changed: Any) -> str:
        """Return an ID token with the claims of now."""
        now = int(self.clock.now().timestamp())
        claims = {
            "iss": MADE_UP,
            "aud": CLIENT,
            "sub": "s-1",
            "iat": now,
            "exp": now + 300,
            "email": "anna@example.org",
            "groups": ["dlq-admins"],
        }
        claims |= self.claims | changed
        kept = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": "first"} | self.header, kept, self.key)


async def begin(client: Client, provider: MadeUp, *, next_: str = "/system") -> dict[str, str]:
    """Leave for a made-up provider; return the parameters that it was sent."""
    left = await client.get("/sign-in/start", params={"next": next_})
    assert left.status_code == 303, left.text
    sent = {
        name: values[0]
        for name, values in parse_qs(urlsplit(left.headers["location"]).query).items()
    }
    provider.claims.setdefault("nonce", sent["nonce"])
    return sent


async def finish(client: Client, sent: dict[str, str], **changed: str) -> httpx.Response:
    """Come back from a made-up provider with its code."""
    given = {"state": sent["state"], "code": "c-1", "iss": MADE_UP} | changed
    return await client.get(f"/sign-in/callback?{urlencode(given)}")
