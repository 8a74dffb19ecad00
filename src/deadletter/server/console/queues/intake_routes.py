"""Routes of intakes: dead queues of other systems, and what may be done with them."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from litestar import Request, Response, get, post
from litestar.params import PathParameter, QueryParameter
from msgspec import Struct

from deadletter.core.access import Role
from deadletter.core.errors import ConfigError
from deadletter.core.intakes import IntakeState, IntakeStatus, Sighting
from deadletter.core.letter import error_name
from deadletter.core.text import clean, cut, many
from deadletter.server.acting import intake_acts
from deadletter.server.auth.guards import needs
from deadletter.server.console.forms import LARGEST, read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import (
    About,
    bare_page,
    done,
    is_partial,
    path_to,
    render_page,
    render_part,
)
from deadletter.server.context import Here, Who

from .intake_rows import IntakePage, IntakeRow, intake_page, intake_row

Name = Annotated[str, PathParameter(max_length=64)]
ACT: Final = [needs(Role.OPERATOR)]
_LONGEST: Final = 300


@get("/intake", guards=[needs(Role.READER)], include_in_schema=False)
async def show_intakes(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    part: Annotated[Literal["rows"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show all intakes of this server, or the part that changes."""
    page: IntakePage = intake_page(context, who)
    if part is not None:
        return render_part(request, "queues/intake_rows.html", page)
    about = About(title="Intake", screen="intake", command=_command(page.rows), api="/intakes")
    return await render_page(request, "queues/intake.html", page, about)


class SightedRow(Struct, frozen=True, kw_only=True):
    """A message in a dead queue, as the letter that it would become."""

    source: str
    message_id: str
    error: str
    text: str
    dialect: str
    size: int


class IntakeLook(Struct, frozen=True, kw_only=True):
    """The first messages of a place."""

    row: IntakeRow
    found: tuple[SightedRow, ...]
    headline: str
    back: str = "/intake"


@post(
    "/intake/{name:str}/look",
    guards=ACT,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def look_at_intake(
    request: Request[Any, Any, Any], context: Here, who: Who, name: Name
) -> Response[bytes]:
    """Show the first messages of a place as letters; all of them stay."""
    found = await intake_acts.look_at_intake(context, who, name)
    row = intake_row(intake_acts.intake_named(context, who, name).status())
    page = IntakeLook(row=row, found=tuple(map(_sighted, found)), headline=_looked(row, found))
    if is_partial(request):
        return render_part(request, "queues/intake_look_dialog.html", page)
    about = About(title=f"Look at {row.status.name}", screen="intake")
    return bare_page(request, "queues/intake_look_page.html", page, about)


class IntakeDialog(Struct, frozen=True, kw_only=True):
    """The dialog of an act on one intake."""

    act: str
    row: IntakeRow
    back: str = "/intake"


@get("/intake/{name:str}/dialog", guards=ACT, include_in_schema=False)
async def show_intake_dialog(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    name: Name,
    act: Annotated[Literal["take", "follow", "stop"], QueryParameter()],
) -> Response[bytes]:
    """Show the form of an act."""
    row = intake_row(intake_acts.intake_named(context, who, name).status())
    page = IntakeDialog(act=act, row=row)
    if is_partial(request):
        return render_part(request, "queues/intake_dialog.html", page)
    return bare_page(
        request, "queues/intake_dialog_page.html", page, About(title="Intake", screen="intake")
    )


class TakeForm(Struct, frozen=True, kw_only=True):
    """How many messages to take in: a number, or all."""

    limit: str = "all"
    reason: str = ""

    def most(self) -> int | None:
        """Return the number; None means all."""
        if self.limit == "all":
            return None
        if not self.limit.isdecimal() or not 1 <= int(self.limit) <= 1_000_000:
            raise ConfigError(f"limit must be all, or 1 to 1,000,000, got {self.limit[:20]!r}")
        return int(self.limit)


class ReasonForm(Struct, frozen=True, kw_only=True):
    """Why."""

    reason: str = ""


@post(
    "/intake/{name:str}/take",
    guards=ACT,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def take_from_intake(
    request: Request[Any, Any, Any], context: Here, who: Who, name: Name
) -> Response[bytes]:
    """Take in messages; what lasts goes on in the server."""
    form = await read_form(request, TakeForm)
    before = intake_acts.intake_named(context, who, name).status()
    after = await intake_acts.take_from_intake(
        context, who, name, limit=form.most(), reason=form.reason
    )
    return done(request, _taken(before, after), to="/intake")


@post(
    "/intake/{name:str}/follow",
    guards=ACT,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def follow_intake(
    request: Request[Any, Any, Any], context: Here, who: Who, name: Name
) -> Response[bytes]:
    """Take in what arrives from now on."""
    form = await read_form(request, ReasonForm)
    status = await intake_acts.follow_intake(context, who, name, reason=form.reason)
    text = f"{status.name} is followed: what arrives becomes letters, until somebody stops it."
    return done(request, Notice(text=text), to="/intake")


@post(
    "/intake/{name:str}/stop",
    guards=ACT,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def stop_intake(
    request: Request[Any, Any, Any], context: Here, who: Who, name: Name
) -> Response[bytes]:
    """Stop following, or taking."""
    form = await read_form(request, ReasonForm)
    status = await intake_acts.stop_intake(context, who, name, reason=form.reason)
    text = f"{status.name} is stopped. What is in {status.place} stays there."
    return done(request, Notice(text=text), to="/intake")


def _taken(before: IntakeStatus, after: IntakeStatus) -> Notice:
    count, new = after.taken - before.taken, after.new - before.new
    refused = after.refused - before.refused
    if after.trouble and after.state is IntakeState.IDLE:
        text = f"{many(count, 'letter')} taken in from {after.place}, and then: {after.trouble}"
        return Notice(text=text)
    parts = [f"{many(count, 'letter')} taken in from {after.place}"]
    if count > new:
        parts.append(f"{count - new:,} of them known already")
    if refused:
        parts.append(f"{many(refused, 'message')} refused by the office, and left there")
    text = ", ".join(parts)
    if after.state is IntakeState.TAKING:
        text += "; the rest goes on in the server"
    elif not count and not refused:
        text = f"Nothing was taken: {after.place} is empty"
    link = path_to("letters", q="is:open") if count else ""
    return Notice(text=f"{text}.", link=link, link_text="Open letters" if link else "")


def _looked(row: IntakeRow, found: Sequence[Sighting]) -> str:
    if not found:
        return f"{row.status.place} is empty."
    there = row.status.waiting
    of = f" of about {there:,}" if there is not None and there > len(found) else ""
    return f"The first {many(len(found), 'message')}{of}, as letters. All of them stay there."


def _sighted(one: Sighting) -> SightedRow:
    head = one.head
    return SightedRow(
        source=head.source,
        message_id=head.message_id,
        error=error_name(head.error_type) or str(head.reason),
        text=cut(clean(head.error_text or head.reason_text), _LONGEST),
        dialect=one.dialect,
        size=head.size,
    )


def _command(rows: Sequence[IntakeRow]) -> str:
    if not rows:
        return "dlq drain SERVER orders.dead"
    status = rows[0].status
    return f"dlq drain {status.server} {status.place}"


routes: Final[list[Any]] = [
    *(show_intakes, look_at_intake, show_intake_dialog),
    *(take_from_intake, follow_intake, stop_intake),
]
