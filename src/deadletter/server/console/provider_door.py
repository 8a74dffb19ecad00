"""The door for people of an OpenID provider: leave for it, come back with a code."""

from datetime import timedelta
from typing import Annotated, Any, Final

from litestar import Request, Response, get
from litestar.datastructures import Cookie
from litestar.exceptions import NotFoundException, TooManyRequestsException
from litestar.params import QueryParameter

from deadletter.core.errors import ConfigError, Conflict
from deadletter.server.auth.authenticator import is_https
from deadletter.server.auth.guards import authenticator
from deadletter.server.auth.hosts import Connection
from deadletter.server.auth.oidc import Attempt, InvalidSignIn, OpenIdProvider, ProviderAway, unpack
from deadletter.server.auth.oidc_claims import SignInRefused, identity_of
from deadletter.server.auth.routes import keys
from deadletter.server.auth.sessions import open_session
from deadletter.server.context import Here, ServerContext

from .door import sign_in_again, too_many_words
from .pages import LONGEST, note_start, own_path, redirect
from .problems import sentence

_LASTS: Final = 600  # seconds between leaving and coming back
_KEPT: Final = timedelta(days=30)  # after the last sign-in, for replays in progress
_NAMES: Final = ("state", "code", "iss", "error")


async def _before(request: Request[Any, Any, Any]) -> None:
    note_start(request)


@get("/sign-in/start", include_in_schema=False)
async def start(
    request: Request[Any, Any, Any],
    context: Here,
    next: Annotated[str, QueryParameter(max_length=LONGEST)] = "",
) -> Response[bytes]:
    """Lead the browser to the provider."""
    provider = _provider(context)
    to = own_path(next)
    try:
        url, attempt = await provider.begin(to)
    except ProviderAway as error:
        return _away(request, to, error)
    answer = redirect(url, cookies=[_cookie(request, attempt.packed(), _LASTS)])
    answer.headers["referrer-policy"] = "no-referrer"
    return answer


@get("/sign-in/callback", include_in_schema=False, before_request=_before)
async def come_back(request: Request[Any, Any, Any], context: Here) -> Response[bytes]:
    """Sign in the person who comes back from the provider."""
    provider = _provider(context)
    to = "/"
    # Providers add parameters that nobody here knows.
    state, code, iss, error = (_given(request, name) for name in _NAMES)
    try:
        authenticator(request).check_failures(request)
        attempt = unpack(request.cookies.get(_name(request), ""))
        to = own_path(attempt.next)
        if error:
            raise _refused(attempt, state, error)
        claims = await provider.finish(attempt, state=state, code=code, iss=iss)
        cookie = await _signed_in(request, context, provider, claims)
    except ProviderAway as away:
        return _away(request, to, away)
    except TooManyRequestsException as many:
        return _again(request, to, too_many_words(many), 429, many.headers)
    except SignInRefused as refused:
        return _again(request, to, str(refused), 403)
    except InvalidSignIn as invalid:
        return await _failed(request, context, to, invalid)
    return redirect(to, cookies=[cookie, _cookie(request, "", 0)])


async def _signed_in(
    request: Request[Any, Any, Any],
    context: ServerContext,
    provider: OpenIdProvider,
    claims: dict[str, Any],
) -> Cookie:
    to = identity_of(claims, provider.settings)
    try:
        token = await keys(context).sign_in_token(
            to, expires_at=context.clock.now() + _KEPT, by=str(provider.settings.issuer)
        )
    except (ConfigError, Conflict) as error:
        raise SignInRefused(sentence(str(error))) from error
    _, cookie = await open_session(request, context, token, hours=provider.settings.hours)
    return cookie


def _given(request: Request[Any, Any, Any], name: str) -> str:
    """Return a parameter of the provider; empty if it is missing or given twice."""
    values = request.query_params.getall(name, [])
    return values[0] if len(values) == 1 else ""


def _provider(context: ServerContext) -> OpenIdProvider:
    if context.oidc is None or context.access is None:
        raise NotFoundException
    return context.oidc


def _refused(attempt: Attempt, state: str, error: str) -> Exception:
    """Return why the provider sent the browser back without a code."""
    if state != attempt.state:
        return InvalidSignIn("the answer of the provider belongs to another sign-in")
    if error == "access_denied":
        return SignInRefused("The provider did not let you in, or you went back there.")
    return ProviderAway(f"it answered {error[:60]!a}")


async def _failed(
    request: Request[Any, Any, Any], context: ServerContext, to: str, error: InvalidSignIn
) -> Response[bytes]:
    try:
        await authenticator(request).count_failure(request, context.store)
    except TooManyRequestsException as many:
        return _again(request, to, too_many_words(many), 429, many.headers)
    return _again(request, to, f"The sign-in failed: {error}. Try again.", 400)


def _away(request: Request[Any, Any, Any], to: str, error: ProviderAway) -> Response[bytes]:
    text = f"Signing in with the provider is not possible now: {error}. A token works."
    return _again(request, to, text, 503)


def _again(
    request: Request[Any, Any, Any],
    to: str,
    problem: str,
    status: int,
    headers: dict[str, str] | None = None,
) -> Response[bytes]:
    kept = {name: value for name, value in (headers or {}).items() if name == "Retry-After"}
    answer = sign_in_again(request, to, problem, status, kept, is_of_provider=True)
    answer.cookies.append(_cookie(request, "", 0))
    return answer


def _name(connection: Connection) -> str:
    return "__Host-dlq-sign-in" if is_https(connection) else "dlq-sign-in"


def _cookie(connection: Connection, value: str, lasts: int) -> Cookie:
    return Cookie(
        key=_name(connection),
        value=value,
        max_age=lasts,
        httponly=True,
        secure=is_https(connection),
        samesite="lax",  # the provider leads the browser back by a link
    )


routes: Final[list[Any]] = [start, come_back]
