"""The door: sign in with a token or a one-time code, sign out."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from litestar import Request, Response, get, post
from litestar.exceptions import HTTPException, NotAuthorizedException, TooManyRequestsException
from litestar.params import QueryParameter
from msgspec import Struct, structs

from deadletter.core.access import Identity, Role, Session
from deadletter.core.errors import Conflict
from deadletter.core.text import many
from deadletter.server.auth.authenticator import FORM
from deadletter.server.auth.guards import authenticator, caller, needs
from deadletter.server.auth.hosts import refuse_tokens_in_urls, reject_other_origins
from deadletter.server.auth.masks import mask
from deadletter.server.auth.sessions import end_session, open_session
from deadletter.server.context import Here, ServerContext

from .pages import LONGEST, About, bare_page, is_partial, own_path, path_to, redirect, render_part
from .problems import ProblemPage

_ABOUT: Final = About(title="Sign in")
_LARGEST: Final = 16 * 1024  # bytes of a sign-in, because the caller is still unknown
_INVALID: Final = (
    "This token or code is not valid. It may have expired, or have been revoked; a code works once."
)


class SignInPage(Struct, frozen=True, kw_only=True):
    """The sign-in, before or after a failure."""

    next: str
    problem: str = ""
    provider: str = ""  # the name of an OpenID provider to sign in with, if there is one
    start: str = ""  # the path that leads to it
    is_of_provider: bool = False  # whether the problem is about the provider, not the token


class SignedIn(Struct, frozen=True, kw_only=True):
    """What a page needs to go on after somebody signed in over it."""

    csrf: str
    who: Identity  # a page of somebody else is loaded anew
    now: datetime
    ends: datetime


@get("/sign-in", include_in_schema=False)
async def show_sign_in(
    request: Request[Any, Any, Any],
    context: Here,
    next: Annotated[str, QueryParameter(max_length=LONGEST)] = "",
    part: Annotated[Literal["dialog"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """
    Show the sign-in; lead those who are signed in to where they wanted to go.

    As a dialog it is shown over a page whose session has ended or is about to.
    """
    refuse_tokens_in_urls(request)
    if part == "dialog":
        return render_part(request, "parts/sign_in.html", _page(request, own_path(next)))
    if context.access is None or await _is_known(request):
        return redirect(own_path(next))
    return bare_page(request, "sign_in.html", _page(request, own_path(next)), _ABOUT)


@post("/sign-in", include_in_schema=False, request_max_body_size=_LARGEST)
async def sign_in(request: Request[Any, Any, Any], context: Here) -> Response[bytes]:
    """
    Sign in with a token or a one-time code.

    The form of the page leads on; the one of the dialog gets what its page needs to go on.
    """
    if request.content_type[0] != FORM:
        raise HTTPException(f"the content type must be {FORM}", status_code=415)
    reject_other_origins(request)
    form = await request.form()
    to = own_path(str(form.get("next", "")))
    if context.access is None:
        return redirect(to)
    shown = str(form.get("token", "")).strip()
    try:
        token = await authenticator(request).sign_in(request, shown, context.store)
        session, cookie = await open_session(request, context, token)
    except NotAuthorizedException:
        return _refused(request, to, _INVALID, 401)
    except TooManyRequestsException as error:
        kept = {"retry-after": (error.headers or {}).get("Retry-After", "60")}
        return _refused(request, to, too_many_words(error), 429, kept)
    if not is_partial(request):
        return redirect(to, cookies=[cookie])
    answer = _going_on(request, session)
    answer.set_cookie(cookie)
    return answer


@get("/sign-in/again", guards=[needs(Role.READER)], include_in_schema=False)
async def go_on(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return what a page needs to go on, after somebody signed in elsewhere in the browser."""
    session = (await caller(request)).session
    if session is None:
        raise Conflict("this request has no session: sign in first")
    return _going_on(request, session)


@post("/sign-out", guards=[needs(Role.READER)], include_in_schema=False)
async def sign_out(request: Request[Any, Any, Any], context: Here) -> Response[bytes]:
    """End the session."""
    cookie = await end_session(request, context, await caller(request))
    return redirect("/sign-in", cookies=[cookie])


def _going_on(request: Request[Any, Any, Any], session: Session) -> Response[bytes]:
    context: ServerContext = request.app.state.context
    found = SignedIn(
        csrf=mask(session.csrf), who=session.to, now=context.clock.now(), ends=session.expires_at
    )
    return render_part(request, "parts/signed_in.html", found)


def _refused(
    request: Request[Any, Any, Any],
    to: str,
    problem: str,
    status: int,
    headers: dict[str, str] | None = None,
) -> Response[bytes]:
    if not is_partial(request):
        return sign_in_again(request, to, problem, status, headers)
    page = ProblemPage(status=status, title=_ABOUT.title, text=problem)
    return render_part(request, "parts/problem.html", page, status=status, headers=headers)


async def _is_known(request: Request[Any, Any, Any]) -> bool:
    try:
        await caller(request)
    except HTTPException:
        return False
    return True


def sign_in_again(
    request: Request[Any, Any, Any],
    to: str,
    problem: str,
    status: int,
    headers: dict[str, str] | None = None,
    *,
    is_of_provider: bool = False,
) -> Response[bytes]:
    """Show the sign-in again, with what went wrong."""
    page = structs.replace(_page(request, to, problem), is_of_provider=is_of_provider)
    return bare_page(request, "sign_in.html", page, _ABOUT, status=status, headers=headers)


def too_many_words(error: TooManyRequestsException) -> str:
    """Return in words when somebody may try again."""
    seconds = (error.headers or {}).get("Retry-After", "60")
    return f"Too many failed attempts from your address. Try again in {_wait(seconds)}."


def _page(request: Request[Any, Any, Any], to: str, problem: str = "") -> SignInPage:
    context: ServerContext = request.app.state.context
    if context.oidc is None:
        return SignInPage(next=to, problem=problem)
    return SignInPage(
        next=to,
        problem=problem,
        provider=context.oidc.settings.name,
        start=path_to("sign-in", "start", next=to),
    )


def _wait(seconds: str) -> str:
    count = int(seconds) if seconds.isdecimal() else 60
    return many(count, "second") if count < 120 else many(-(-count // 60), "minute")


routes: Final[list[Any]] = [show_sign_in, sign_in, go_on, sign_out]
