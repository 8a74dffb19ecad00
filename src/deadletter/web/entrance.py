"""What holds for every request, whichever route it is for, or none."""

from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Receive, Scope, Send

from deadletter.core.documents import encode_document

from .auth.refusing import refuse_odd_hosts, refuse_other_sites
from .problems import MEDIA_TYPE, problem_of


class Entrance:
    """
    An application that checks the host of a request before another one answers it.

    Errors, health, metrics and addresses without a route are behind it as well.
    """

    def __init__(self, app: ASGIApp, *, only_local: bool) -> None:
        self._app = app
        self._only_local = only_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        try:
            if scope["type"] == ScopeType.HTTP:
                refuse_odd_hosts(scope)
                if self._only_local:
                    refuse_other_sites(scope)
        except HTTPException as error:
            await _refuse(send, error)
        else:
            await self._app(scope, receive, send)


async def _refuse(send: Send, error: HTTPException) -> None:
    problem, _ = problem_of(error)
    body = encode_document(problem)
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),  # its body, if any, is not read
    ]
    await send(
        {
            "type": "http.response.start",
            "status": problem.status,
            "headers": headers,
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})
