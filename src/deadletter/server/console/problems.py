"""Problems as pages: the sign-in for the unknown, sentences for everybody else."""

from typing import Any, Final

from litestar import Request, Response
from litestar.types import ExceptionHandlersMap
from msgspec import Struct

from deadletter.server.problems import Problem, described

from .pages import About, bare_page, is_partial, path_to, redirect, render_part

_OF_PROGRAMS: Final = ("/api/", "/v1", "/health", "/metrics", "/admin/", "/static/")
_UNKNOWN: Final = 401
_TITLES: Final = {
    400: "That did not work",
    403: "Not allowed",
    404: "Not found",
    409: "It has changed",
    429: "Too many requests",
    500: "Unexpected error",
    502: "The engine rejected it",
    503: "The office does not answer",
}
_NO_PAGE: Final = "There is no such page, or you may not see it."


class ProblemPage(Struct, frozen=True, kw_only=True):
    """A problem in words."""

    status: int
    title: str
    text: str
    hints: tuple[str, ...] = ()
    again_after: str = ""  # seconds
    sign_in: str = ""  # the path to sign in again and come back


def page_handlers(handlers: ExceptionHandlersMap) -> ExceptionHandlersMap:
    """Return handlers that answer browsers with pages, and programs as before."""
    return {kind: _for_browsers(handler) for kind, handler in handlers.items()}


def _for_browsers(handler: Any) -> Any:
    def handle(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
        return _page(request, error) if _wants_page(request) else handler(request, error)

    return handle


def _wants_page(request: Request[Any, Any, Any]) -> bool:
    if request.scope["path"].startswith(_OF_PROGRAMS):
        return False
    return is_partial(request) or "text/html" in request.headers.get("accept", "")


def _page(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    problem, headers = described(request, error)
    back = path_to("sign-in", next=_address(request))
    if problem.status == _UNKNOWN and not is_partial(request):
        return redirect(back)
    page = _in_words(problem, headers, back)
    kept = {name: value for name, value in headers.items() if name.lower() == "retry-after"}
    if is_partial(request):
        return render_part(request, "parts/problem.html", page, status=problem.status, headers=kept)
    about = About(title=page.title)
    return bare_page(request, "problem.html", page, about, status=problem.status, headers=kept)


def _in_words(problem: Problem, headers: dict[str, str], back: str) -> ProblemPage:
    is_unknown = problem.status == _UNKNOWN
    text = problem.detail or problem.title
    if problem.type.endswith(":no-route"):
        text = _NO_PAGE
    if is_unknown:
        text = "Your session has ended. Nothing was done."
    again = next((v for name, v in headers.items() if name.lower() == "retry-after"), "")
    return ProblemPage(
        status=problem.status,
        title="Signed out" if is_unknown else _TITLES.get(problem.status, problem.title),
        text=sentence(text),
        hints=tuple(f"{one.key}: {one.message}" for one in problem.errors),
        again_after=again,
        sign_in=back if is_unknown else "",
    )


def sentence(text: str) -> str:
    """Return a text that begins with a capital and ends with a full stop."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _address(request: Request[Any, Any, Any]) -> str:
    """Return the page to come back to: the one asked for, or the one a script belongs to."""
    shown = request.headers.get("hx-current-url", "") if is_partial(request) else ""
    if shown:
        _, _, rest = shown.partition("://")
        return "/" + rest.partition("/")[2]
    if request.method != "GET":
        return ""
    query = request.scope["query_string"].decode("latin-1")
    return request.scope["path"] + (f"?{query}" if query else "")
