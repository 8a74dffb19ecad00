"""
Idempotency keys: a repeated POST or PATCH with the same `Idempotency-Key` is done once.

The answer is stored for a day, and the same caller gets it again for the same request with
the same key. Only successful answers are stored, so a failed request can be repeated. An
answer with a secret is not stored; see `SHOWN_ONCE`.
"""

from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Final, Protocol

from litestar import Request, Response
from litestar.middleware import DefineMiddleware
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from msgspec.structs import replace

from deadletter.core.access import Answer, Identity
from deadletter.core.errors import BackendError
from deadletter.core.text import encode_document
from deadletter.ports import Clock, Guards
from deadletter.server.auth.guards import caller

from .context import ServerContext
from .problems import MEDIA_TYPE, AnswerInstead, problem_of

HEADER: Final = "idempotency-key"
METHODS: Final = frozenset({"POST", "PATCH"})  # the other methods are idempotent
REPLAYED: Final = "idempotency-replayed"
SHOWN_ONCE: Final = "shown_once"
"""Key in `opt` of a route: a function that turns its answer into the error to store instead."""
_LONGEST: Final = 200
_WORKING: Final = timedelta(minutes=10)  # after which a request in progress counts as lost
_KEPT: Final = timedelta(days=1)
_LARGEST: Final = 1024 * 1024  # bytes of an answer that is stored
_MOST: Final = 10_000  # answers in memory
_CLAIM: Final = "dlq_answer"


class Answers(Protocol):
    """The part of an `AccessStore` that this module uses."""

    async def begin_answer(self, answer: Answer) -> Answer | None: ...
    async def finish_answer(self, answer: Answer) -> None: ...
    async def drop_answer(self, key: str) -> None: ...


class AnswersInMemory:
    """The latest answers of one process, for engines that do not store answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: dict[str, Answer] = {}

    async def begin_answer(self, answer: Answer) -> Answer | None:
        """Claim a key and return None, or return the existing answer or claim."""
        known = self._answers.get(answer.key)
        if known is not None and known.expires_at > self._clock.now():
            return known
        while len(self._answers) >= _MOST:
            del self._answers[next(iter(self._answers))]
        self._answers[answer.key] = answer
        return None

    async def finish_answer(self, answer: Answer) -> None:
        """Store an answer."""
        self._answers[answer.key] = answer

    async def drop_answer(self, key: str) -> None:
        """Release a key."""
        self._answers.pop(key, None)


def answers_of(context: ServerContext) -> Answers:
    """Return the store of answers: shared by all servers of an office, if possible."""
    if context.access is not None:
        return context.access
    if isinstance(context.engine, Guards):
        return context.engine.access
    return AnswersInMemory(context.clock)


async def replayed_answer(request: Request[Any, Any, Any]) -> Response[bytes] | None:
    """
    Return the stored answer to a repeated request; for `before_request`.

    Guards have run by then, and keys belong to one caller: nobody gets the answer to
    another caller.
    """
    given = request.headers.get(HEADER)
    if request.method not in METHODS or given is None:
        return None
    if not (1 <= len(given) <= _LONGEST and given.isascii() and given.isprintable()):
        detail = f"an idempotency key must have 1 to {_LONGEST} printable ASCII characters"
        raise AnswerInstead(400, "idempotency-key", detail)
    context: ServerContext = request.app.state.context
    who = (await caller(request)).who
    claim = Answer(
        key=_digest(given.encode(), *_rights(who)),
        request=await _fingerprint(request),
        expires_at=context.clock.now() + _WORKING,
    )
    known = await request.app.state.answers.begin_answer(claim)
    if known is None:
        request.scope["state"][_CLAIM] = claim
        return None
    if known.request != claim.request:
        detail = "this idempotency key was used for another request: use a new one"
        raise AnswerInstead(422, "idempotency-key", detail)
    if known.status is None:
        detail = "the same request is in progress: retry soon"
        raise AnswerInstead(409, "in-progress", detail, {"retry-after": "1"})
    return Response(
        known.body,
        status_code=known.status,
        media_type=known.content_type,
        headers={REPLAYED: "true"},
    )


class AnswerKeeper:
    """Middleware that stores the answer to a claimed request before sending it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") not in METHODS:
            await self._app(scope, receive, send)
            return
        held: list[Message] = []

        async def holding(message: Message) -> None:
            claim = scope.get("state", {}).get(_CLAIM)
            if claim is None:
                await send(message)
                return
            held.append(message)
            if not message.get("more_body") and "body" in message:
                del scope["state"][_CLAIM]
                with suppress(BackendError):  # the request is done: send its answer anyway
                    await _remember(scope, claim, held)
                for one in held:
                    await send(one)

        try:
            await self._app(scope, receive, holding)
        finally:
            if claim := scope.get("state", {}).pop(_CLAIM, None):
                # The request was aborted without an answer, so it can be repeated.
                with suppress(BackendError):  # then the claim expires by itself
                    await scope["litestar_app"].state.answers.drop_answer(claim.key)


middleware: Final = DefineMiddleware(AnswerKeeper)


async def _remember(scope: Scope, claim: Answer, held: list[Message]) -> None:
    context: ServerContext = scope["litestar_app"].state.context
    answers: Answers = scope["litestar_app"].state.answers
    start: Any = held[0]
    body = b"".join(one.get("body", b"") for one in held)  # type: ignore[misc]
    headers = {name.lower(): value for name, value in start["headers"]}
    if start["status"] >= 400 or len(body) > _LARGEST:
        await answers.drop_answer(claim.key)
        return
    status = start["status"]
    kind = headers.get(b"content-type", b"").decode("latin-1")
    if instead := scope["route_handler"].opt.get(SHOWN_ONCE):
        problem, _ = problem_of(instead(body))
        status, kind, body = problem.status, MEDIA_TYPE, encode_document(problem)
    await answers.finish_answer(
        replace(
            claim,
            status=status,
            body=body,
            content_type=kind,
            expires_at=context.clock.now() + _KEPT,
        )
    )


async def _fingerprint(request: Request[Any, Any, Any]) -> str:
    """Return the digest that identifies a request."""
    return _digest(
        request.scope["path"].encode(),
        request.scope["query_string"],
        request.headers.get("content-type", "").encode(),
        await request.body(),
    )


def _rights(who: Identity) -> list[bytes]:
    """Return what identifies a caller: the same name with another token is another caller."""
    parts = (who.principal, who.name, who.role, *sorted(who.sources))
    return [part.encode("utf-8", "surrogatepass") for part in parts]


def _digest(*parts: bytes) -> str:
    digest = blake2b(digest_size=32)
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()
