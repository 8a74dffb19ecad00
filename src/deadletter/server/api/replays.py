"""Routes of replays: plan, start, pause, resume, cancel, report, confirm; and of nodes."""

from typing import Annotated, Any, Final, TypeAlias

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct, structs

from deadletter.core.access import Pass, Role
from deadletter.core.campaign import Campaign, Care
from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.letter import By
from deadletter.core.query import ast, parse
from deadletter.core.query.fields import pattern
from deadletter.core.query.parse import MAX_TEXT
from deadletter.core.text import many
from deadletter.office.letters import of_sources
from deadletter.office.outcomes import Confirmed
from deadletter.office.preflight import LetterVerdicts, Plan
from deadletter.office.replay import CAP, FASTEST, HIGHEST_CAP
from deadletter.office.replay_sender import ReplaySender
from deadletter.office.replays import ReplayRequest
from deadletter.office.selection import (
    WIDEST,
    Chosen,
    ReplayPage,
    Selected,
    check_not_elsewhere,
    found_by,
)
from deadletter.ports import ReplayItems
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Place, Who
from deadletter.server.search import After, Limit, Searches

from .letters import AtMost, Expect, Reason, Selection, chosen
from .moves import Why

READ: Final = [needs(Role.READER)]
ACT: Final = [needs(Role.OPERATOR)]
Sender: TypeAlias = NamedDependency[ReplaySender]  # as `sender`
Name: TypeAlias = Annotated[
    str, PathParameter(max_length=64, description="The replay's id, or the beginning of it.")
]
Position: TypeAlias = Annotated[
    int,
    QueryParameter(ge=0, le=10**9, description="`after` of the page before: what comes behind it."),
]
Rate: TypeAlias = Annotated[
    float, Meta(gt=0, le=FASTEST, description="Maximum letters per second (default: unlimited).")
]
Cap: TypeAlias = Annotated[
    int,
    Meta(
        ge=1,
        le=HIGHEST_CAP,
        description="Quarantine letters that have been replayed this many times already.",
    ),
]
To: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        description="Another mailbox than each letter's own, one of the configured.",
    ),
]


Through: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
        description="The server of others that the letters go back to, by its name in"
        " the settings. Without, the one they were drained from.",
    ),
]


MessageIds: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=2_000)], ...],
    Meta(min_length=1, max_length=1_000),
]


class Careful(Care, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How carefully letters are sent."""


class ReplayWish(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Letters to send back, and how."""

    to: To | None = None
    rate: Rate | None = None
    cap: Cap = CAP
    care: Careful = Careful()
    through: Through | None = None

    def request(self, found: Chosen, by: By) -> ReplayRequest:
        """Return the request to replay the letters that were found."""
        return ReplayRequest(
            chosen=found,
            by=by,
            limit=self.limit,
            to=self.to,
            cap=self.cap,
            rate=self.rate,
            care=Care(**structs.asdict(self.care)),
            through=self.through,
        )


class Start(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consent to a plan; `expect` is the number of letters somebody has seen."""

    expect: Expect | None = None
    reason: Reason = ""


class Resume(Why, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Go on with a replay."""

    take_over: bool = False  # whoever was sending it is gone for sure


class Confirmation(Why, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that a consumer has handled, by the ids their producer gave them."""

    message_ids: MessageIds


class Planned(Struct, frozen=True, kw_only=True):
    """A replay and what is to be expected of it; `sendable` letters would be sent."""

    replay: Campaign
    plan: Plan
    sendable: int


@post("/replays/plan", guards=ACT)
async def plan_replay(
    place: Here, who: Who, searching: Searches, data: JSONBody[ReplayWish]
) -> Planned:
    """
    Choose the letters of a replay, with a verdict for each; nothing is sent yet.

    The letters are fixed from here on: start it by its id, or cancel it.
    """
    found = await chosen(place, who, data, searching, to_replay=True)
    return await planned(place, who, data.request(found, who.by(data.reason)))


@post("/replays", guards=ACT)
async def start_replay(
    place: Here, who: Who, searching: Searches, sender: Sender, data: JSONBody[ReplayWish]
) -> Planned:
    """
    Plan a replay and start it at once.

    With a `query` this takes `expect`, the number of letters somebody has agreed to.
    """
    if data.query is not None and data.expect is None:
        raise ConfigError(
            "to send what a search finds takes `expect`, the number of letters: plan it first"
        )
    found = await chosen(place, who, data, searching, to_replay=True)
    found_plan = await planned(place, who, data.request(found, who.by(data.reason)))
    await _check_agreed(place, found_plan, who.by(data.reason))
    return await start(place, sender, found_plan, who.by(data.reason))


@get("/replays", guards=READ)
async def list_replays(place: Here, who: Who, limit: Limit = 20, after: After = None) -> ReplayPage:
    """List replays with their counts, latest first."""
    owner = who.principal if who.sources else None  # see `_find`
    return await place.office.replays.page(limit=limit, owner=owner, after=after)


@get("/replays/{name:str}", guards=READ)
async def get_replay(place: Here, who: Who, name: Name) -> Campaign:
    """Return one replay and its counts."""
    return await _find(place, who, name)


@post("/replays/{name:str}/start", guards=ACT, status_code=200)
async def start_planned(
    place: Here, who: Who, sender: Sender, name: Name, data: JSONBody[Start]
) -> Campaign:
    """Start a replay that was planned."""
    campaign = await _find(place, who, name)
    size = sum(campaign.counts.values())
    if data.expect is not None and data.expect != size:
        raise Conflict(f"it has {many(size, 'letter')}, not {data.expect:,}")
    _check_target(place, who, campaign.to)
    return await sender.start(campaign.id, who.by(data.reason))


@post("/replays/{name:str}/pause", guards=ACT, status_code=200)
async def pause_replay(place: Here, who: Who, name: Name, data: JSONBody[Why]) -> Campaign:
    """Pause a replay, wherever it is being sent."""
    campaign = await _find(place, who, name)
    return await place.office.replays.pause(campaign.id, who.by(data.reason))


@post("/replays/{name:str}/resume", guards=ACT, status_code=200)
async def resume_replay(
    place: Here, who: Who, sender: Sender, name: Name, data: JSONBody[Resume]
) -> Campaign:
    """
    Let sending go on; this server does it.

    A replay that says it is running may be sent by somebody still: that takes
    `take_over`, and only does something if they are gone.
    """
    campaign = await _find(place, who, name)
    _check_target(place, who, campaign.to)
    by = who.by(data.reason)
    return await sender.start(campaign.id, by, take_over=data.take_over)


@post("/replays/{name:str}/cancel", guards=ACT, status_code=200)
async def cancel_replay(place: Here, who: Who, name: Name, data: JSONBody[Why]) -> Campaign:
    """Cancel a replay. Letters that were not sent keep their state."""
    campaign = await _find(place, who, name)
    return await place.office.replays.cancel(campaign.id, who.by(data.reason))


@post("/replays/verdicts", guards=ACT, status_code=200)
async def judge_letters(
    place: Here,
    who: Who,
    searching: Searches,
    data: JSONBody[ReplayWish],
    *,
    after: Position = 0,
    limit: Limit = 100,
) -> LetterVerdicts:
    """
    Judge each letter that a plan would go through, also those that it leaves out.

    Nothing is stored, and nothing sent. `limit` of the wish counts letters to send,
    from this page on.
    """
    found = await chosen(place, who, data, searching, to_replay=True)
    _check_target(place, who, data.to)
    _check_source(place, data.through)
    request = data.request(found, who.by(data.reason))
    return await place.office.replays.verdicts_page(request, after=after, size=limit)


@get("/replays/{name:str}/verdicts", guards=READ)
async def list_verdicts(
    place: Here, who: Who, name: Name, after: Position = 0, limit: Limit = 100
) -> LetterVerdicts:
    """Return the current verdict of each letter of a replay, in sending order."""
    campaign = await _find(place, who, name)
    return await place.office.replays.sender.verdicts_of(campaign, after=after, limit=limit)


@get("/replays/{name:str}/report", guards=READ)
async def report_replay(
    place: Here, who: Who, name: Name, after: Position = 0, limit: Limit = 100
) -> ReplayItems:
    """Return the outcome of each letter of a replay, in sending order."""
    campaign = await _find(place, who, name)
    return await place.office.replays.outcomes(campaign.id, after=after, limit=limit)


@post("/confirmations", guards=ACT, status_code=200)
async def confirm_messages(place: Here, who: Who, data: JSONBody[Confirmation]) -> Confirmed:
    """
    Confirm that a consumer has handled replayed messages.

    Letters that waited for their outcome, or were presumed handled, are confirmed.
    """
    return await place.office.replays.confirm(
        data.message_ids, who.by(data.reason), sources=who.sources
    )


async def judged(place: Place, who: Pass, request: ReplayRequest) -> Selected:
    """Choose the letters of a replay that the caller may start; nothing is stored."""
    _check_target(place, who, request.to)
    _check_source(place, request.through)
    selected = await place.office.replays.select(request)
    if not selected.plan.total:
        raise NotFound("none of these letters is there, so there is nothing to replay")
    check_not_elsewhere(selected)
    return selected


async def planned(place: Place, who: Pass, request: ReplayRequest) -> Planned:
    """Record a replay that waits for its start."""
    selected = await judged(place, who, request)
    campaign = await place.office.replays.begin(request, hold=True, selected=selected)
    plan = selected.plan
    return Planned(replay=campaign, plan=plan, sendable=plan.sendable)


async def start(place: Place, sender: ReplaySender, found: Planned, by: By) -> Planned:
    """Start what was just planned, if anything of it can be sent."""
    if not found.sendable:
        nobody = By(by.actor, "none of its letters can be sent")
        await place.office.replays.cancel(found.replay.id, nobody)
        raise Conflict("none of these letters can be sent: plan it to see why")
    campaign = await sender.start(found.replay.id, by)
    return structs.replace(found, replay=campaign)


async def _check_agreed(place: Place, found: Planned, by: By) -> None:
    """Refuse to start letters at once that somebody should be asked about."""
    if not found.plan.asked:
        return
    nobody = By(by.actor, "nobody agreed to all of its verdicts")
    await place.office.replays.cancel(found.replay.id, nobody)
    which = ", ".join(f"{found.plan.verdicts[one]:,} {one}" for one in found.plan.asked)
    raise Conflict(
        f"some of these letters are sent only if somebody agrees: {which}. Name the"
        " verdict in care.include or care.skip, or plan the replay and start it"
    )


async def _find(place: Place, who: Pass, name: str) -> Campaign:
    # Letters of any mailbox may be in it: those limited to some see their own.
    return await place.office.replays.status(name, seen=lambda one: who.owns(one.owner))


def _check_target(place: Place, who: Pass, to: str | None) -> None:
    """
    Letters go to mailboxes the server was told of, never to what a caller says.

    Whoever is limited to some mailboxes sends to these only. What else there is, and
    why one is not among it, is not told.
    """
    if to is not None and not (who.sees(to) and to in place.settings.serve.replay_to):
        raise ConfigError(
            f"{to!r} is not among the mailboxes that you may replay letters to: name"
            " one that serve.replay_to has and your token sees"
        )


def _check_source(place: Place, name: str | None) -> None:
    """Refuse servers that the settings do not name: never a URL from a request."""
    if name is not None and name not in place.settings.sources:
        raise ConfigError(
            f"{name!r} is not among the servers that the settings name: add"
            " [sources.NAME] with its url to deadletter.toml"
        )


routes: Final[list[Any]] = [
    plan_replay,
    judge_letters,
    start_replay,
    list_replays,
    get_replay,
    start_planned,
    pause_replay,
    resume_replay,
    cancel_replay,
    list_verdicts,
    report_replay,
    confirm_messages,
]


Node: TypeAlias = Annotated[
    str, PathParameter(min_length=1, max_length=512, description="The node's id.")
]
Filter: TypeAlias = Annotated[
    str, Meta(max_length=MAX_TEXT, description="A search among the node's letters.")
]
_REPLAYABLE: Final = ast.Term("is", ast.Op.IS, ("pending", "reviewed"))


class NodeReplayRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a node's replay, and how carefully its letters are sent."""

    limit: AtMost | None = None
    filter: Filter = ""
    rate: Rate | None = None
    cap: Cap = CAP
    expect: Expect | None = None
    dry_run: bool = False  # report what would be sent, and send nothing
    reason: Reason = ""


class NodeReplay(Struct, frozen=True, kw_only=True):
    """The plan, and the replay that carries it out; a dry run has none."""

    replay: Campaign | None = None
    plan: Plan
    sendable: int
    taken_in: int = 0  # letters that were found in the node's dead-letter topic just now


@post(
    "/admin/dlq/{node_id:str}/replay",
    guards=[needs(Role.OPERATOR)],
    responses={200: ResponseSpec(NodeReplay, description="A dry run: nothing is sent.")},
)
async def replay_node(
    place: Here,
    who: Who,
    searching: Searches,
    sender: Sender,
    *,
    node_id: Node,
    data: JSONBody[NodeReplayRequest],
) -> Response[NodeReplay]:
    """
    Send the open letters of a pipeline node back to its input topic.

    First the node's dead-letter topic is read, `dlq.{cluster}.{node}` or the one that the
    graph names: records that the office does not know, such as those of another engine,
    become letters. Then the letters that the node gave up on, and those of its input topic,
    go back to it: the stream alone, without its envelope. With `dry_run` the answer is 200 and
    says what would be sent, also of the records that were found; nothing is sent.
    """
    by = who.by(data.reason)
    taken_in = 0
    if place.nodes is not None:
        taken_in = await place.nodes.take_in(node_id, by, sees=who.sees)
    sought = parse(data.filter)
    some = () if sought == ast.EVERYTHING else (sought,)
    node = ast.All((_of(node_id), _REPLAYABLE, *some))
    seen = of_sources(node, who.sources)
    found = await found_by(searching, seen, widest=WIDEST)
    found.check(data.expect, data.limit)
    wish = ReplayWish(rate=data.rate, cap=data.cap, limit=data.limit, reason=data.reason)
    request = wish.request(found, by)
    if data.dry_run:
        plan = (await judged(place, who, request)).plan
        dry = NodeReplay(plan=plan, sendable=plan.sendable, taken_in=taken_in)
        return Response(dry, status_code=200)
    made = await planned(place, who, request)
    sent = await start(place, sender, made, by)
    answer = NodeReplay(
        replay=sent.replay, plan=sent.plan, sendable=sent.sendable, taken_in=taken_in
    )
    return Response(answer)


def _of(node_id: str) -> ast.Node:
    """Match the letters that a node gave up on, and those that died in its topic."""
    name = pattern((node_id,))
    return ast.Any(
        (
            ast.Term("consumer", ast.Op.IS, (name,)),
            ast.Term("source", ast.Op.IS, (name, f"*.{name}")),
        )
    )


node_routes: Final[list[Any]] = [replay_node]
