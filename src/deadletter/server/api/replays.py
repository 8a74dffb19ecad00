"""Routes of replays: plan, start, pause, resume, cancel, report, confirm; and of nodes."""

from typing import Annotated, Any, Final, TypeAlias

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct, structs

from deadletter.core.access import Role
from deadletter.core.campaign import Campaign, Care, Included, Outcome, Skipped, Verdict
from deadletter.core.letter import By
from deadletter.core.query import ast, parse
from deadletter.core.query.fields import pattern
from deadletter.core.query.parse import MAX_TEXT
from deadletter.office.aftermath import Aftermath
from deadletter.office.letter_search import of_sources
from deadletter.office.outcomes import Confirmed
from deadletter.office.preflight import LetterVerdicts, Plan
from deadletter.office.progress import ReplayProgress
from deadletter.office.replay import FASTEST, HIGHEST_CAP
from deadletter.office.replay_plans import PlanWish
from deadletter.office.replay_sender import ReplaySender
from deadletter.office.replay_verdicts import CAP
from deadletter.office.replays import ReplayRequest
from deadletter.office.selection import WIDEST, Chosen, ReplayPage, found_by
from deadletter.ports import ReplayItems
from deadletter.server.acting import replay_acts
from deadletter.server.acting.choice import AtMost, Expect, choose
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who
from deadletter.server.search import After, Limit, Searches

from .letters import Reason, Selection
from .moves import Why

READ: Final = [needs(Role.READER)]
ACT: Final = [needs(Role.OPERATOR)]
Sender: TypeAlias = NamedDependency[ReplaySender]  # as `sender`
Name: TypeAlias = Annotated[
    str, PathParameter(max_length=64, description="The replay's id, or the beginning of it.")
]
Position: TypeAlias = Annotated[
    int, QueryParameter(ge=0, le=10**9, description="`after` of the previous page, to continue it.")
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
        description="Send all letters to this mailbox, one of `serve.replay_to`.",
    ),
]


Through: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
        description="The server to send drained letters through: a name of"
        " [sources.NAME] in the settings (default: the server they were drained from).",
    ),
]


OneVerdict: TypeAlias = Annotated[
    Verdict | None, QueryParameter(description="Only letters with this verdict.")
]
Outcomes: TypeAlias = Annotated[
    list[Outcome] | None,
    QueryParameter(max_items=len(Outcome), description="Only letters with one of these outcomes."),
]
MessageIds: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=2_000)], ...],
    Meta(min_length=1, max_length=1_000),
]


class Careful(Care, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options for sending letters in steps."""


class ReplayOptions(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Letters to replay, and the options of the replay."""

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
    """A confirmation of a plan; `expect` is the number of letters it must have."""

    expect: Expect | None = None
    reason: Reason = ""


class Agreement(Start, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    Changes to a plan whose verdicts somebody has seen.

    `expect` is the number of letters that would be sent then.
    """

    leave_out: Skipped = ()
    include: Included = ()
    care: Careful | None = None  # other precautions; null: as planned

    def wish(self) -> PlanWish:
        """Return the changes."""
        care = None if self.care is None else Care(**structs.asdict(self.care))
        return PlanWish(leave_out=self.leave_out, include=self.include, care=care)


class Resume(Why, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options for continuing a replay."""

    take_over: bool = False  # the process that was sending it has died


class Confirmation(Why, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that a consumer has handled, by the ids their producer gave them."""

    message_ids: MessageIds


@post("/replays/plan", guards=ACT)
async def plan_replay(
    context: Here, who: Who, searching: Searches, data: JSONBody[ReplayOptions]
) -> replay_acts.Planned:
    """
    Choose the letters of a replay, with a verdict for each; nothing is sent yet.

    The letters are fixed now: start the replay by its id, or cancel it.
    """
    found = await choose(context, who, searching, data, to_replay=True)
    return await replay_acts.plan(context, who, data.request(found, who.by(data.reason)))


@post("/replays/freeze", guards=ACT)
async def freeze_replay(
    context: Here, who: Who, searching: Searches, sender: Sender, data: JSONBody[ReplayOptions]
) -> Campaign:
    """
    Choose the letters of a replay at once, and judge them in the background.

    For many letters. `plan` of the replay says how many are judged so far, and what the
    verdicts are; it can be started when all are.
    """
    found = await choose(context, who, searching, data, to_replay=True)
    return await replay_acts.freeze(context, who, sender, data.request(found, who.by(data.reason)))


@post("/replays", guards=ACT)
async def start_replay(
    context: Here, who: Who, searching: Searches, sender: Sender, data: JSONBody[ReplayOptions]
) -> replay_acts.Planned:
    """
    Plan a replay and start it immediately.

    With a `query`, `expect` is required: the confirmed number of letters.
    """
    data.check_count("replay", first="plan the replay")
    found = await choose(context, who, searching, data, to_replay=True)
    request = data.request(found, who.by(data.reason))
    return await replay_acts.start_at_once(context, who, sender, request)


@get("/replays", guards=READ)
async def list_replays(
    context: Here, who: Who, limit: Limit = 20, after: After = None
) -> ReplayPage:
    """List replays with their counts, latest first."""
    owner = who.principal if who.sources else None  # see `replay_acts.find`
    return await context.office.replays.page(limit=limit, owner=owner, after=after)


@get("/replays/{name:str}", guards=READ)
async def get_replay(context: Here, who: Who, name: Name) -> Campaign:
    """Return one replay and its counts."""
    return await replay_acts.find(context, who, name)


@post("/replays/{name:str}/agree", guards=ACT, status_code=200)
async def agree_to_plan(context: Here, who: Who, name: Name, data: JSONBody[Agreement]) -> Campaign:
    """Change which verdicts a judged replay leaves out or includes, before its start."""
    return await replay_acts.agree(
        context, who, name, data.wish(), reason=data.reason, expect=data.expect
    )


@post("/replays/{name:str}/approve", guards=ACT, status_code=200)
async def approve_replay(context: Here, who: Who, name: Name, data: JSONBody[Start]) -> Campaign:
    """
    Agree to a replay that somebody else planned.

    Replays of more letters than `serve.approve_above` start only after that.
    """
    return await replay_acts.approve(context, who, name, reason=data.reason, expect=data.expect)


@post("/replays/{name:str}/start", guards=ACT, status_code=200)
async def start_planned(
    context: Here, who: Who, sender: Sender, name: Name, data: JSONBody[Start]
) -> Campaign:
    """Start a planned replay."""
    return await replay_acts.start(
        context, who, sender, name, reason=data.reason, expect=data.expect
    )


@post("/replays/{name:str}/pause", guards=ACT, status_code=200)
async def pause_replay(context: Here, who: Who, name: Name, data: JSONBody[Why]) -> Campaign:
    """Pause a replay, wherever it is being sent."""
    return await replay_acts.pause(context, who, name, reason=data.reason)


@post("/replays/{name:str}/resume", guards=ACT, status_code=200)
async def resume_replay(
    context: Here, who: Who, sender: Sender, name: Name, data: JSONBody[Resume]
) -> Campaign:
    """
    Continue a replay; this server sends it.

    A running replay may still be sent by another process. With `take_over` this server
    continues it if that process has died.
    """
    return await replay_acts.resume(
        context, who, sender, name, reason=data.reason, take_over=data.take_over
    )


@post("/replays/{name:str}/cancel", guards=ACT, status_code=200)
async def cancel_replay(context: Here, who: Who, name: Name, data: JSONBody[Why]) -> Campaign:
    """Cancel a replay. Letters that were not sent keep their state."""
    return await replay_acts.cancel(context, who, name, reason=data.reason)


@post("/replays/verdicts", guards=ACT, status_code=200)
async def judge_letters(
    context: Here,
    who: Who,
    searching: Searches,
    data: JSONBody[ReplayOptions],
    *,
    after: Position = 0,
    limit: Limit = 100,
) -> LetterVerdicts:
    """
    Return the verdict of each letter of a plan, also of those that it leaves out.

    Nothing is stored or sent. `limit` in the body counts the letters that would be
    sent, from this page on.
    """
    found = await choose(context, who, searching, data, to_replay=True)
    replay_acts.check_target(context, who, data.to)
    replay_acts.check_source(context, data.through)
    request = data.request(found, who.by(data.reason))
    return await context.office.replays.verdicts_page(request, after=after, size=limit)


@get("/replays/{name:str}/verdicts", guards=READ)
async def list_verdicts(
    context: Here,
    who: Who,
    name: Name,
    *,
    verdict: OneVerdict = None,
    after: Position = 0,
    limit: Limit = 100,
) -> LetterVerdicts:
    """
    Return the verdict on each letter of a replay, in sending order.

    Those of a replay that was frozen are kept with it; of others they are the current ones.
    """
    campaign = await replay_acts.find(context, who, name)
    return await context.office.replays.sender.verdicts_of(
        campaign, verdict=verdict, after=after, limit=limit
    )


@get("/replays/{name:str}/report", guards=READ)
async def report_replay(
    context: Here,
    who: Who,
    name: Name,
    *,
    outcome: Outcomes = None,
    after: Position = 0,
    limit: Limit = 100,
) -> ReplayItems:
    """Return the outcome of each letter of a replay, in sending order."""
    campaign = await replay_acts.find(context, who, name)
    return await context.office.replays.outcomes(
        campaign.id, after=after, limit=limit, only=outcome or ()
    )


@get("/replays/{name:str}/progress", guards=READ)
async def get_progress(context: Here, who: Who, name: Name) -> ReplayProgress:
    """Return the stages of a replay, how far it is, and why it is paused."""
    campaign = await replay_acts.find(context, who, name)
    return await context.office.replays.progress(campaign.id)


@get("/replays/{name:str}/aftermath", guards=READ)
async def get_aftermath(context: Here, who: Who, name: Name) -> Aftermath:
    """Return why letters of a replay failed again: the same error as before, or another."""
    campaign = await replay_acts.find(context, who, name)
    return await context.office.replays.aftermath(campaign.id, sources=who.sources)


@post("/confirmations", guards=ACT, status_code=200)
async def confirm_messages(context: Here, who: Who, data: JSONBody[Confirmation]) -> Confirmed:
    """
    Confirm that a consumer has handled replayed messages.

    Confirms letters that wait for their outcome or were presumed handled.
    """
    return await context.office.replays.confirm(
        data.message_ids, who.by(data.reason), sources=who.sources
    )


routes: Final[list[Any]] = [
    plan_replay,
    freeze_replay,
    judge_letters,
    start_replay,
    list_replays,
    get_replay,
    agree_to_plan,
    approve_replay,
    start_planned,
    pause_replay,
    resume_replay,
    cancel_replay,
    list_verdicts,
    report_replay,
    get_progress,
    get_aftermath,
    confirm_messages,
]


Node: TypeAlias = Annotated[
    str, PathParameter(min_length=1, max_length=512, description="The node's id.")
]
Filter: TypeAlias = Annotated[
    str, Meta(max_length=MAX_TEXT, description="A search among the letters of the node.")
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
    context: Here,
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
    if context.nodes is not None:
        taken_in = await context.nodes.take_in(node_id, by, sees=who.sees)
    sought = parse(data.filter)
    some = () if sought == ast.EVERYTHING else (sought,)
    node = ast.All((_of(node_id), _REPLAYABLE, *some))
    seen = of_sources(node, who.sources)
    found = await found_by(searching, seen, widest=WIDEST)
    found.check(data.expect, data.limit)
    options = ReplayOptions(rate=data.rate, cap=data.cap, limit=data.limit, reason=data.reason)
    request = options.request(found, by)
    if data.dry_run:
        plan = (await replay_acts.judge(context, who, request)).plan
        dry = NodeReplay(plan=plan, sendable=plan.sendable, taken_in=taken_in)
        return Response(dry, status_code=200)
    made = await replay_acts.plan(context, who, request)
    sent = await replay_acts.start_plan(context, sender, made, by)
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
