"""
Sign-in with an OpenID provider: authorization code with PKCE, state and nonce.

The browser keeps what it needs to come back in a cookie of ten minutes, so that any server
of the office can finish what another one began. The provider is asked when somebody signs
in, never at the start: a server starts while its provider is away.
"""

import asyncio
import base64
import hashlib
import logging
import secrets
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.ports import Clock
from deadletter.settings import Oidc, Serve

from .hosts import is_local
from .oidc_claims import has_all

CALLBACK: Final = "/sign-in/callback"
"""The path to which the provider sends browsers back."""
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
"""Signatures that are accepted: none with a shared secret, and never none at all."""
_FRESH: Final = 3_600.0  # seconds until the provider's description is read again
_KEYS_AGAIN: Final = 30.0  # seconds until unknown keys are asked for again
_PATIENCE: Final = 8.0  # seconds for one answer
_LARGEST: Final = 1024 * 1024  # bytes of an answer
_AT_ONCE: Final = 20  # requests to the provider
_BYTES: Final = 32
_MOST_CODE: Final = 4_000  # characters

T = TypeVar("T")

log = logging.getLogger("deadletter.server")


class ProviderAway(Exception):
    """The provider does not answer, or not as a provider does; the text says what."""


class InvalidSignIn(Exception):
    """The browser came back with something that does not belong to its sign-in."""


class Attempt(Struct, frozen=True):
    """What a browser keeps between leaving for the provider and coming back."""

    state: str
    nonce: str
    verifier: str  # of PKCE
    next: str

    def packed(self) -> str:
        """Return the attempt as the value of a cookie."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def unpack(cookie: str) -> Attempt:
    """Return the attempt of a cookie; raises InvalidSignIn if it is not one."""
    try:
        raw = base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
        return msgspec.json.decode(raw, type=Attempt)
    except (ValueError, msgspec.MsgspecError):
        raise InvalidSignIn("the sign-in took too long, or was begun in another browser") from None


class _Provider(Struct, frozen=True):
    """The description that a provider gives of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(Struct, frozen=True):
    id_token: str
    access_token: str = ""


class OpenIdProvider:
    """The provider of the settings, and what it said of itself."""

    def __init__(self, settings: Oidc, clock: Clock) -> None:
        if not (settings.issuer and settings.client_id and settings.url):
            raise ConfigError("serve.oidc needs issuer, client_id and url")
        self.settings = settings
        self.redirect_uri = settings.url.rstrip("/") + CALLBACK
        self._issuer = settings.issuer
        self._client_id = settings.client_id
        self._secret = _secret(settings)
        self._clock = clock
        self._known: tuple[float, _Provider] | None = None
        self._keys: tuple[float, dict[str, Any]] | None = None
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def begin(self, next_: str) -> tuple[str, Attempt]:
        """
        Return the URL of the provider to go to, and what the browser keeps meanwhile.

        Raises ProviderAway if the provider does not answer.
        """
        provider = await self._describe()
        attempt = Attempt(
            state=secrets.token_urlsafe(_BYTES),
            nonce=secrets.token_urlsafe(_BYTES),
            verifier=secrets.token_urlsafe(_BYTES),
            next=next_,
        )
        challenge = hashlib.sha256(attempt.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join(dict.fromkeys(("openid", *self.settings.scopes))),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        url = provider.authorization_endpoint
        return f"{url}{'&' if '?' in url else '?'}{urlencode(asked)}", attempt

    async def finish(self, attempt: Attempt, *, state: str, code: str, iss: str) -> dict[str, Any]:
        """
        Return the claims of the person who came back with a code.

        Raises InvalidSignIn if something does not belong to the attempt, and ProviderAway.
        """
        if not compare_digest(state.encode(), attempt.state.encode()):
            raise InvalidSignIn("the answer of the provider belongs to another sign-in")
        provider = await self._describe()
        if iss and iss != provider.issuer:
            raise InvalidSignIn("the answer came from another provider")
        if not code or len(code) > _MOST_CODE:
            raise InvalidSignIn("the provider sent no code")
        tokens = await self._exchange(provider, attempt, code)
        claims = await self._verified(provider, tokens.id_token, attempt.nonce)
        if not has_all(claims, self.settings) and provider.userinfo_endpoint:
            claims = {**await self._userinfo(provider, tokens, claims), **claims}
        return claims

    async def _exchange(self, provider: _Provider, attempt: Attempt, code: str) -> _Tokens:
        sent = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        headers = {}
        methods = provider.token_endpoint_auth_methods_supported
        if self._secret is None:
            sent["client_id"] = self._client_id
        elif "client_secret_basic" in methods or "client_secret_post" not in methods:
            pair = f"{quote(self._client_id, safe='')}:{quote(self._secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            sent |= {"client_id": self._client_id, "client_secret": self._secret}
        status, body = await self._ask("POST", provider.token_endpoint, data=sent, headers=headers)
        if 400 <= status < 500:
            log.warning("the provider refused a code: %s", _error_of(body))
            raise InvalidSignIn("the provider refused the code: it works once, for a short time")
        return _decoded(status, body, _Tokens, "of its token endpoint")

    async def _verified(self, provider: _Provider, id_token: str, nonce: str) -> dict[str, Any]:
        from joserfc.errors import InvalidKeyIdError, JoseError  # noqa: PLC0415 -- an extra

        try:
            try:
                return self._claims(await self._key_set(provider), id_token, nonce)
            except InvalidKeyIdError:  # the provider has changed its keys
                keys = await self._key_set(provider, again=True)
                return self._claims(keys, id_token, nonce)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            log.warning("an ID token was refused: %s", error)
            raise InvalidSignIn("the ID token of the provider is not valid") from error

    def _claims(self, key_set: dict[str, Any], id_token: str, nonce: str) -> dict[str, Any]:
        from joserfc import jwt  # noqa: PLC0415 -- an extra
        from joserfc.jwk import KeySet  # noqa: PLC0415

        keys = KeySet.import_key_set({"keys": key_set["keys"]})
        claims: dict[str, Any] = jwt.decode(id_token, keys, algorithms=ALGORITHMS).claims
        jwt.JWTClaimsRegistry(
            now=int(self._clock.now().timestamp()),
            leeway=int(self.settings.skew),
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": self._client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        ).validate(claims)
        audience = claims["aud"]
        party = claims.get("azp")
        if isinstance(audience, list) and len(audience) > 1 and party is None:
            raise ValueError("it is for several clients, and names none as its party")
        if party is not None and party != self._client_id:
            raise ValueError("it was made for another client")
        if not compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise ValueError("its nonce belongs to another sign-in")
        return claims

    async def _userinfo(
        self, provider: _Provider, tokens: _Tokens, claims: dict[str, Any]
    ) -> dict[str, Any]:
        assert provider.userinfo_endpoint
        headers = {"authorization": f"Bearer {tokens.access_token}"}
        status, body = await self._ask("GET", provider.userinfo_endpoint, headers=headers)
        found = _decoded(status, body, dict[str, Any], "of its userinfo endpoint")
        if found.get("sub") != claims["sub"]:
            raise InvalidSignIn("the provider told of somebody else")
        return found

    async def _describe(self) -> _Provider:
        now = self._clock.monotonic()
        if self._known is not None and now - self._known[0] < _FRESH:
            return self._known[1]
        url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        found = _decoded(*await self._ask("GET", url), _Provider, "of itself")
        if found.issuer != self._issuer:
            raise ProviderAway(
                f"it calls itself {found.issuer!a}, and serve.oidc.issuer is {self._issuer!a}"
            )
        for endpoint in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            if url_problem(endpoint):
                raise ProviderAway(f"it names {endpoint!a}, which is not an https:// URL")
        self._known = (self._clock.monotonic(), found)
        return found

    async def _key_set(self, provider: _Provider, *, again: bool = False) -> dict[str, Any]:
        now = self._clock.monotonic()
        if self._keys is not None:
            age = now - self._keys[0]
            if age < (_KEYS_AGAIN if again else _FRESH):
                return self._keys[1]
        status, body = await self._ask("GET", provider.jwks_uri)
        found = _decoded(status, body, dict[str, Any], "of its keys")
        self._keys = (self._clock.monotonic(), found)
        return found

    async def _ask(self, method: str, url: str, **more: Any) -> tuple[int, bytes]:
        """Return status and body of an answer; raises ProviderAway. Follows no redirects."""
        import httpx  # noqa: PLC0415 -- an extra

        headers = {"accept": "application/json", **more.pop("headers", {})}
        try:
            async with (
                self._asking,
                asyncio.timeout(_PATIENCE),
                httpx.AsyncClient(follow_redirects=False, timeout=_PATIENCE) as client,
                client.stream(method, url, headers=headers, **more) as answer,
            ):
                body = b""
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > _LARGEST:
                        raise ProviderAway("its answer is too large")
                return answer.status_code, body
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
            log.warning("the OpenID provider does not answer: %s", type(error).__name__)
            raise ProviderAway("it does not answer") from error


def open_provider(serve: Serve, clock: Clock) -> OpenIdProvider | None:
    """
    Return the provider of the settings; None if they name none.

    Raises ConfigError for settings that cannot work. The provider is not asked for anything.
    """
    settings = serve.oidc
    if settings.issuer is None:
        return None
    if serve.access == "off" or serve.console == "off":
        raise ConfigError(
            "serve.oidc.issuer is set, and serve.access or serve.console is off: nobody signs"
            " in there. Turn both on, or remove serve.oidc."
        )
    for name in ("client_id", "url"):
        if getattr(settings, name) is None:
            raise ConfigError(f"serve.oidc.issuer is set, so serve.oidc.{name} is needed, too")
    for name, url in (("issuer", settings.issuer), ("url", settings.url or "")):
        if problem := url_problem(url):
            raise ConfigError(f"serve.oidc.{name} is {url!a}: {problem}")
    if not (settings.readers or settings.operators or settings.admins):
        raise ConfigError(
            "serve.oidc gives nobody a role: list values of the claim"
            f" {settings.role_claim!r} in readers, operators or admins"
        )
    _check_installed()
    return OpenIdProvider(settings, clock)


def url_problem(url: str) -> str | None:
    """Return why a URL of a provider or a console cannot be used; None if it can."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return "it is not a valid URL"
    if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
        return "give an https:// URL without user name and password"
    if parts.scheme == "http" and not is_local(host):
        return "over plain http everybody on the way could sign in: use https://"
    return None


def _check_installed() -> None:
    try:
        import httpx  # noqa: F401, PLC0415 -- an extra
        import joserfc  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"serve.oidc needs {error.name}: pip install 'deadletter[oidc]'"
        ) from error


def _secret(settings: Oidc) -> str | None:
    if settings.client_secret_file is None:
        return settings.client_secret
    try:
        return Path(settings.client_secret_file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read serve.oidc.client_secret_file {settings.client_secret_file!a}: {error}"
        ) from error


def _decoded(status: int, body: bytes, kind: type[T], what: str) -> T:
    if status != 200:
        raise ProviderAway(f"it answered {status} instead of a description {what}")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ProviderAway(f"its description {what} is malformed") from None


def _error_of(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body).get("error", ""))[:100]
    except (msgspec.MsgspecError, UnicodeDecodeError, AttributeError):
        return "no reason"
