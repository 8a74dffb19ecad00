"""
The description of the API as OpenAPI 3.1, with an example of every request and response.

Paths and parameters come from Litestar. Bodies are described by msgspec, which also reads
and writes them, so that the description matches the server.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType
from typing import Any, Final, get_args, get_origin

import msgspec
from litestar import Litestar, Response, get
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.params import RawBody
from litestar.response import Stream
from litestar.routes import HTTPRoute
from msgspec import Struct, structs

from deadletter.core.access import IssuedToken, Role, TokenView
from deadletter.core.attempts import Attempt
from deadletter.core.brake import BrakeKind, BrakeWindow, WindowState
from deadletter.core.deaths import By, DeathCount
from deadletter.core.failure import Reason, Trouble
from deadletter.core.ids import letter_id
from deadletter.core.letter import AuditEntry, DeadLetter, GroupStatus, LetterHead, State
from deadletter.core.message import Message
from deadletter.office.archive import ArchiveHead, small_archives
from deadletter.office.archive_import import TakenIn
from deadletter.office.deaths import DeathChart, Mark, MarkKind
from deadletter.office.diff import Difference, Line, Sign
from deadletter.office.group_versions import GroupVersions, NewerVersion, VersionLine
from deadletter.office.groups import GroupCounts, GroupLine, GroupPage, Regrouped, RuleLine
from deadletter.office.letters_protocol import LetterCount
from deadletter.office.mailboxes import Outage, Released
from deadletter.office.repair import RepairPlan, RepairSample, RepairVerdict
from deadletter.office.stats import Arrivals, MailboxLine, Stats
from deadletter.office.variants import Trait, ValueCount, Variants
from deadletter.office.verbs import Moved
from deadletter.office.view import Kind, LetterView, MessageView, Moment
from deadletter.office.workers import RunningVersion
from deadletter.ports import Page, QueueInfo, QueueOptions
from deadletter.server.auth.guards import Needs
from deadletter.server.auth.routes import Whoami
from deadletter.server.idempotency import HEADER, METHODS
from deadletter.server.problems import MEDIA_TYPE, Problem

from .archive import LINES
from .moves import VERB_ROUTES
from .replay_examples import REPLAYS
from .search_examples import SEARCHES
from .triage_examples import ANSWERS
from .upkeep_examples import SESSION, UPKEEP
from .worker_examples import WORKERS, intake_examples

_AT: Final = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
_ID: Final = letter_id("orders", "", "o-17")
_GROUP: Final = "f1a2b3c4d5e6"
_REPLAY: Final = "019a8c3e-7b1d-7c2a-9d4e-5f6071829304"
_WHY: Final = {"reason": "the bank is back"}
_SOME: Final = {"query": "is:pending source:orders", "expect": 3} | _WHY


class Example(Struct, frozen=True):
    """Example of a request and its answer."""

    answered: Any
    asked: Any = None
    others: dict[int, Any] = {}  # other successful answers, by status


_HEAD: Final = LetterHead(
    id=_ID,
    source="orders",
    message_id="o-17",
    reason=Reason.ATTEMPTS_EXHAUSTED,
    reason_text="failed 5 of 5 attempts",
    trouble=Trouble.TRANSIENT,
    code="TIMEOUT",
    error_type="builtins.TimeoutError",
    error_text="the bank did not answer",
    fingerprint=_GROUP,
    attempts=5,
    first_failed_at=_AT,
    dead_at=_AT,
    consumer="charge",
    version="1.8.0",
    size=42,
)
_ATTEMPT: Final = Attempt(number=5, at=_AT, trouble=Trouble.TRANSIENT, code="TIMEOUT", seconds=30.0)
_LETTER: Final = LetterView(
    head=_HEAD,
    message=MessageView(
        id="o-17",
        sent_at=_AT,
        content_type="application/json",
        key=None,
        expires_at=None,
        reply_to=None,
        idempotency_key=None,
        traceparent=None,
        headers=("tenant: eu", "authorization: [redacted]"),
        preview='{\n  "order": 17,\n  "amount": 42\n}',
    ),
    attempts=(_ATTEMPT,),
    position=None,
    first_received_at=_AT,
    frame="shop:charge",
    route=None,
    retry_wish=None,
)
_MESSAGE: Final = Message(
    id="o-17",
    body=b'{"order": 17}',
    sent_at=_AT,
    headers=(("tenant", b"eu"),),
    content_type="application/json",
)
_ACT: Final = AuditEntry(
    seq=12, at=_AT, actor="anna", action="move", target=_ID, reason="looked into it"
)
_LINE: Final = GroupLine(
    fingerprint=_GROUP,
    source="orders",
    error_type="builtins.TimeoutError",
    text="the bank did not answer",
    frame="shop:charge",
    trouble=Trouble.TRANSIENT,
    code="TIMEOUT",
    status=GroupStatus.ONGOING,
    since=_AT,
    owner="anna",
    note="the bank is down",
    until=None,
    version="",
    first_seen=_AT,
    last_seen=_AT,
    open=3,
    total=5,
    share=0.75,
)
_WINDOW: Final = BrakeWindow(
    id="0198f2c4-2f8b-7cc3-98c4-dc0c0c07398f",
    mailbox="orders",
    kind=BrakeKind.SYSTEMIC,
    cause="KeyError in shop.orders:charge",
    version="1.8",
    text="10 of the last 10 messages failed by one cause since version 1.8: "
    "KeyError in shop.orders:charge",
    opened_at=_AT,
    seen_at=_AT,
    held=14,
    attempts=31,
    message_ids=("o-1", "o-2"),
)
_OPTIONS: Final = QueueOptions(name="orders", dead_queue="orders-dlq", max_attempts=5)
_INFO: Final = QueueInfo(
    options=_OPTIONS, ready=12, delayed=0, claimed=4, suspects=0, oldest_at=_AT
)
_MOVED: Final = Moved(asked=3, moved=2, skipped={"is closed": 1})
_ONE: Final = Moved(asked=1, moved=1)

_CHANGED: Final = (Difference(part="body", lines=(Line(Sign.GONE, "4z"), Line(Sign.NEW, "42"))),)
_REPAIR: Final = {"patch": {"currency": "EUR"}, "was": {"currency": "eur"}}
_REPAIRED: Final = Moved(asked=3, moved=2, skipped={"have another value there": 1})
_EXPORT: Final = next(
    small_archives(
        [DeadLetter(head=_HEAD, message=_MESSAGE)],
        ArchiveHead(exported_at=_AT, engine="sqlite", query="source:orders"),
        most=10_000,
    )
).decode()
_TEST: Final = "PK… (letter_e6f1b2c3d4.json and test_letter_e6f1b2c3d4.py)"  # a ZIP archive
_WHO: Final = Whoami(name="anna", role=Role.ADMIN, sources=())
_TOKEN: Final = TokenView(
    id="0f3a9c51d2",
    name="ci",
    role=Role.OPERATOR,
    sources=("orders",),
    created_at=_AT,
    created_by="anna",
    expires_at=None,
    last_used_at=None,
)
_SECRET: Final = "dlq_0f3a9c51d2_…"  # noqa: S105 -- not a real secret

EXAMPLES: Final[dict[str, Example]] = {
    "count_letters": Example(LetterCount(10_000, is_all=False)),
    "search_letters": Example(Page((_HEAD,), after="e6f1b2c3d4e50.2a", looked_at=1)),
    "get_letter": Example(_LETTER),
    "get_timeline": Example(
        {
            "id": _ID,
            "moments": [Moment(at=_AT, kind=Kind.ATTEMPT, attempt=_ATTEMPT)],
            "left_out": False,
        }
    ),
    "get_message": Example(_MESSAGE),
    "get_original": Example(_MESSAGE),
    "download_body": Example('{"order": 17}'),
    "get_repro": Example(_TEST),
    "reveal_repro": Example(_TEST),
    "get_difference": Example(_CHANGED),
    "edit_letter": Example(
        _LETTER, {"json": {"order": 17, "amount": 42}, "reason": "amount was text"}
    ),
    **{
        name: Example(_MOVED, _SOME) if name.endswith("_letters") else Example(_ONE, _WHY)
        for name in (route.operation_id for route in VERB_ROUTES)
        if isinstance(name, str)
    },
    "note_letter": Example(_ONE, {"text": "asked the bank"}),
    "note_letters": Example(_MOVED, {"ids": [_ID], "text": "asked the bank"}),
    "plan_repair": Example(
        RepairPlan(
            total=3,
            verdicts={RepairVerdict.CHANGE: 2, RepairVerdict.OTHER_VALUE: 1},
            letters={RepairVerdict.CHANGE: (_ID,)},
            samples=(RepairSample(_ID, _CHANGED),),
        ),
        {"query": "is:pending source:orders"} | _REPAIR,
    ),
    "repair_letters": Example(_REPAIRED, _SOME | _REPAIR),
    "undo_repairs": Example(_ONE, {"ids": [_ID]} | _WHY),
    "list_groups": Example(GroupPage((_LINE,), after=f"3.5.e6f1b2c3d4e50.{_GROUP}")),
    "count_groups": Example(
        GroupCounts(
            listed=3,
            total=24,
            statuses={GroupStatus.NEW: 1, GroupStatus.ONGOING: 2, GroupStatus.RESOLVED: 21},
        )
    ),
    "get_group": Example(_LINE),
    "get_variants": Example(
        Variants(
            group=_GROUP,
            letters=54_210,
            looked_at=1_000,
            opened=1_000,
            compared=300,
            distinct_texts=1,
            texts=(ValueCount(value="the bank did not answer", count=1_000),),
            traits=(
                Trait(
                    field="body.currency",
                    present=1_000,
                    distinct=1,
                    values=(ValueCount(value="JPY", count=1_000, elsewhere=3),),
                ),
            ),
        )
    ),
    "get_group_versions": Example(
        GroupVersions(
            group=_GROUP,
            versions=(VersionLine(version="1.8.0", deaths=121, first=_AT, last=_AT),),
            newer=(NewerVersion("1.8.1", _AT),),
            fix="1.8.1",
            before_fix=f"group:{_GROUP} is:open version:<1.8.1",
            running=(
                RunningVersion(
                    version="1.8.1", workers=3, since=_AT, hosts=("shop-1", "shop-2"), has_fix=True
                ),
                RunningVersion(version="1.8.0", workers=1, since=_AT, hosts=("shop-3",)),
            ),
            workers=4,
            knows_workers=True,
        )
    ),
    "set_standing": Example(
        _LINE, {"status": "resolved", "version": "1.8.1", "reason": "waits longer now"}
    ),
    "list_group_rules": Example(
        [
            RuleLine(
                group="2-payments-1f0c2a7d9b4e6a58",
                target=_GROUP,
                query="",
                actor="anna",
                at="2026-01-31T09:30:00+00:00",
            )
        ]
    ),
    "merge_groups": Example(
        Regrouped(group=_GROUP, moved=12),
        {"others": ["2-payments-1f0c2a7d9b4e6a58"], "reason": "the same bank"},
    ),
    "split_group": Example(
        Regrouped(group="2-payments-90b7c5d3e1f2a4b6", moved=3),
        {"query": "version:1.8", "reason": "another cause since then"},
    ),
    "undo_grouping": Example(
        Regrouped(group=_GROUP, moved=12), {"reason": "not the same after all"}
    ),
    **{name: Example(*told) for name, told in REPLAYS.items()},
    "list_queues": Example([_INFO]),
    "get_queue": Example(_INFO),
    "create_queue": Example(
        _OPTIONS, {"name": "orders", "dead_queue": "orders-dlq", "max_attempts": 5}
    ),
    "change_queue": Example(_OPTIONS, {"max_attempts": 5}),
    "delete_queue": Example({"mailbox": "orders", "purged": 12}),
    "get_outages": Example([Outage(state=WindowState.OPEN, window=_WINDOW)]),
    "release_outage": Example(Released(mailbox="orders", windows=1), {"mailbox": "orders"} | _WHY),
    "get_deaths": Example(
        DeathChart(
            since=_AT - timedelta(hours=24),
            until=_AT,
            step=300.0,
            by=By.GROUP,
            total=3,
            counts=(DeathCount(_AT - timedelta(minutes=5), _GROUP, 3),),
        )
    ),
    "get_marks": Example(
        [
            Mark(
                kind=MarkKind.VERSION,
                at=_AT,
                mailbox="orders",
                name="1.8.0",
                text="1.8.0 first seen at orders",
            )
        ]
    ),
    "latest_audit": Example({"entries": [_ACT], "before": 12}),
    **{name: Example(answer) for name, answer in (ANSWERS | WORKERS).items()},
    **{name: Example(answer, asked) for name, (answer, asked) in (UPKEEP | SEARCHES).items()},
    **{name: Example(answer, asked) for name, (answer, asked) in intake_examples(_HEAD).items()},
    "list_audit": Example({"entries": [_ACT], "after": 12}),
    "export_letters": Example(_EXPORT),
    "import_letters": Example(TakenIn(added=1, known=0), _EXPORT),
    "listen": Example(f"id: 12\nevent: act\ndata: {msgspec.json.encode(_ACT).decode()}\n\n"),
    "sign_in": Example(structs.replace(_WHO, csrf="5bd0…", expires_at=_AT), {"token": _SECRET}),
    "get_session": Example(_WHO),
    "list_sessions": Example([SESSION]),
    "list_tokens": Example([_TOKEN]),
    "issue_token": Example(
        IssuedToken(**structs.asdict(_TOKEN), token=_SECRET),
        {"name": "ci", "role": "operator", "sources": ["orders"]} | _WHY,
    ),
    "get_stats": Example(
        Stats(
            mailboxes=(
                MailboxLine(
                    mailbox="orders",
                    dead_queue="orders-dlq",
                    ready=12,
                    delayed=0,
                    claimed=4,
                    suspects=0,
                    sent=1_020,
                    handled=1_000,
                    buried=4,
                    failed=0,
                    oldest_at=_AT,
                ),
            ),
            letters={State.PENDING: 3, State.CLOSED: 1},
            sources={"orders": {State.PENDING: 3, State.CLOSED: 1}},
            open=3,
            arrivals=(Arrivals(seconds=3_600.0, count=3),),
            deaths_by_hour=(0, 0, 3),
        )
    ),
}


PATH: Final = "/api/openapi.json"
_REF: Final = "#/components/schemas/{name}"
_ABOUT: Final = """
Search, read, group, review, edit and replay dead letters.

Errors are `application/problem+json` with a `detail` that says what to do. A POST or PATCH
with an `Idempotency-Key` can be repeated and is done once, except signing in. The secret of
a new token is only in the first answer. Lists continue with `after`.
"""
_KEY: Final = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "A repeated request with the same key is done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}
_PROBLEM: Final = {"$ref": "#/components/responses/Problem"}


def openapi_route(version: str, routes: Callable[[], Sequence[Any]]) -> HTTPRouteHandler:
    """Return the route of the OpenAPI document, which is computed when first requested."""

    @cache
    def described() -> bytes:
        return msgspec.json.encode(describe(version, routes()))

    @get(PATH, media_type="application/json", include_in_schema=False)
    async def openapi() -> Response[bytes]:
        return Response(described(), media_type="application/json")

    return openapi


def describe(version: str, routes: Sequence[Any]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes."""
    app = Litestar(
        route_handlers=routes,
        dependencies={
            name: _nothing() for name in ("context", "who", "sender", "live", "searching")
        },
        openapi_config=OpenAPIConfig(
            title="deadletter",
            version=version,
            description=_ABOUT.strip(),
            operation_id_creator=lambda handler, *_: handler.fn.__name__,
            render_plugins=[],
        ),
        logging_config=None,
    )
    document: dict[str, Any] = msgspec.to_builtins(app.openapi_schema.to_schema())
    kinds = {Problem}
    for path, method, handler in _handlers(app):
        operation = document["paths"].get(path, {}).get(method)
        if operation is not None:
            kinds |= _describe(operation, handler)
    _, schemas = msgspec.json.schema_components(list(kinds), ref_template=_REF)
    document["components"] = {
        "schemas": schemas,
        "responses": {
            "Problem": {
                "description": "The request failed; `detail` says why and what to do.",
                "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
            }
        },
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    }
    document["security"] = [{"token": []}]
    return document


def _handlers(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                for method in handler.http_methods:
                    yield route.path_format, method.lower(), handler


def _describe(operation: dict[str, Any], handler: HTTPRouteHandler) -> set[Any]:
    """Add to an operation what Litestar leaves out; return the types it refers to."""
    about = inspect.getdoc(handler.fn)
    if about is not None:
        operation["summary"], _, operation["description"] = about.partition("\n\n")
    needed = [one.role for one in handler.resolve_guards() if isinstance(one, Needs)]
    if needed:
        operation["x-role"] = needed[0]
    else:
        operation["security"] = []
    parameters = operation.setdefault("parameters", [])
    for parameter in parameters:
        parameter["schema"] = _strict_schema(parameter["schema"])
    if handler.http_methods & METHODS and handler.resolve_before_request():
        parameters.append(_KEY)
    example = EXAMPLES.get(operation["operationId"], Example(None))
    return {
        kind
        for kind in (
            _describe_body(operation, handler, example.asked),
            _describe_answer(operation, handler, example),
        )
        if kind is not None
    }


def _describe_body(operation: dict[str, Any], handler: HTTPRouteHandler, example: Any) -> Any:
    """Describe the body of a request; return its type."""
    taken = handler.parsed_fn_signature.parameters
    kind = taken["data"].annotation if "data" in taken else None
    if kind is not None:
        content = {"application/json": _content(kind, example)}
    elif any(one.annotation is RawBody for one in taken.values()):
        content = {LINES: {"schema": {"type": "string"}, "example": example}}
    else:
        return None
    operation["requestBody"] = {"required": True, "content": content}
    return kind


def _describe_answer(operation: dict[str, Any], handler: HTTPRouteHandler, example: Example) -> Any:
    """Describe the answers of an operation; return their type."""
    answers = {str(handler.status_code): example.answered}
    answers |= {str(status): other for status, other in example.others.items()}
    kind = _answer_type(handler)
    for status, one in answers.items():
        answer = operation["responses"][status]
        if kind is not None:
            answer["content"] = {"application/json": _content(kind, one)}
        elif one is None:
            answer.pop("content", None)
        else:  # bytes, lines, a stream
            for content in answer["content"].values():
                content.update(schema={"type": "string"}, example=one)
    described = {status: operation["responses"][status] for status in answers}
    operation["responses"] = described | {"default": _PROBLEM}
    return kind


def _content(kind: Any, example: Any) -> dict[str, Any]:
    content = {"schema": _schema(kind)}
    return content if example is None else content | {"example": msgspec.to_builtins(example)}


def _answer_type(handler: HTTPRouteHandler) -> Any:
    """Return the type of a route's answer; None for bytes or nothing."""
    kind = handler.parsed_fn_signature.return_type.annotation
    if get_origin(kind) is Response:
        (kind,) = get_args(kind)
    return None if kind in (bytes, Stream, None, NoneType) else kind


def _schema(kind: Any) -> Any:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return schema


def _strict_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """
    Return the schema of a parameter without null, and with a minimum for integers.

    Litestar allows null for optional parameters, and leaves out a minimum of 0.
    """
    options = [one for one in schema.get("oneOf", ()) if one != {"type": "null"}]
    if len(options) == 1:
        schema = {name: value for name, value in schema.items() if name != "oneOf"}
        schema |= options[0]
    return {"minimum": 0} | schema if schema.get("type") == "integer" else schema


def _nothing() -> Provide:
    return Provide(lambda: None, sync_to_thread=False)
