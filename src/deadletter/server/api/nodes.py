"""The pipeline's way to replay: all that died in one node."""

from typing import Annotated, Any, Final, TypeAlias

from litestar import Response, post
from litestar.openapi import ResponseSpec
from litestar.params import JSONBody, PathParameter
from msgspec import Meta, Struct

from deadletter.core.access import Role
from deadletter.core.campaign import Campaign
from deadletter.core.query import ast, parse
from deadletter.core.query.fields import pattern
from deadletter.core.query.parse import MAX_TEXT
from deadletter.office.letters import of_sources
from deadletter.office.preflight import Plan
from deadletter.office.replay import CAP
from deadletter.office.selection import WIDEST, found_by
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who
from deadletter.server.searching import Searches

from .letters import AtMost, Expect, Reason
from .replays import Cap, Rate, ReplayWish, Sender, judged, planned, start

Node: TypeAlias = Annotated[
    str, PathParameter(min_length=1, max_length=512, description="The node's id.")
]
Filter: TypeAlias = Annotated[
    str, Meta(max_length=MAX_TEXT, description="A search among the node's letters.")
]
_REPLAYABLE: Final = ast.Term("is", ast.Op.IS, ("pending", "reviewed"))


class ReplayRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of what died in a node is to go back, and how."""

    limit: AtMost | None = None
    filter: Filter = ""
    rate: Rate | None = None
    cap: Cap = CAP
    expect: Expect | None = None
    dry_run: bool = False  # only say what would be sent
    reason: Reason = ""


class NodeReplay(Struct, frozen=True, kw_only=True):
    """What is to be expected, and the replay that does it; a dry run has none."""

    replay: Campaign | None = None
    plan: Plan
    sendable: int


@post(
    "/admin/dlq/{node_id:str}/replay",
    guards=[needs(Role.OPERATOR)],
    responses={
        200: ResponseSpec(NodeReplay, description="A dry run: nothing is sent, stored or audited.")
    },
)
async def replay_node(
    place: Here,
    who: Who,
    searching: Searches,
    sender: Sender,
    *,
    node_id: Node,
    data: JSONBody[ReplayRequest],
) -> Response[NodeReplay]:
    """
    Send the open letters of a pipeline node back to its input topic.

    Those that node gave up on, and those of its own topic. Each goes back as it came
    in: the stream alone, not the envelope it was found in. With `dry_run` the answer
    is 200 and says what would be sent; nothing else comes of it.
    """
    sought = parse(data.filter)
    some = () if sought == ast.EVERYTHING else (sought,)
    node = ast.All((_of(node_id), _REPLAYABLE, *some))
    seen = of_sources(node, who.sources)
    found = await found_by(searching, seen, widest=WIDEST)
    found.check(data.expect, data.limit)
    wish = ReplayWish(rate=data.rate, cap=data.cap, limit=data.limit, reason=data.reason)
    request = wish.request(found, who.by(data.reason))
    if data.dry_run:
        plan = (await judged(place, who, request)).plan
        return Response(NodeReplay(plan=plan, sendable=plan.sendable), status_code=200)
    made = await planned(place, who, request)
    sent = await start(place, sender, made, who.by(data.reason))
    return Response(NodeReplay(replay=sent.replay, plan=sent.plan, sendable=sent.sendable))


def _of(node_id: str) -> ast.Node:
    """Letters of a node: it gave up on them, or they died in its topic."""
    name = pattern((node_id,))
    return ast.Any(
        (
            ast.Term("consumer", ast.Op.IS, (name,)),
            ast.Term("source", ast.Op.IS, (name, f"*.{name}")),
        )
    )


routes: Final[list[Any]] = [replay_node]
