"""The pages of a repair: which letters and what change, then what it would do, then what it did."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta, Struct

from deadletter.core.access import Identity
from deadletter.core.errors import ConfigError, QueryError
from deadletter.core.letter import DeadLetter
from deadletter.core.patch import LONGEST_PATCH, Inexpressible
from deadletter.core.query import first_word, parse
from deadletter.core.query.parse import MAX_TEXT
from deadletter.core.text import many
from deadletter.office.letter_search import of_sources
from deadletter.office.repair import MOST_SAMPLES, SAMPLES, RepairSample, RepairVerdict
from deadletter.server.console.letter.differing import Changed, changed_parts
from deadletter.server.console.pages import path_to
from deadletter.server.console.problems import sentence
from deadletter.server.context import ServerContext
from deadletter.server.search import Searching

from .desk import NAMED, Repair
from .edits import field_of, patch_of, typed_again

_SHORT: Final = 10
_CHANGES: Final = 120_000  # bytes of HTML of all samples

# What is said of one letter, and of several.
_TITLES: Final = {
    RepairVerdict.CHANGE: ("would change", "would change"),
    RepairVerdict.UNCHANGED: ("has these values already", "have these values already"),
    RepairVerdict.OTHER_VALUE: ("has another value there", "have another value there"),
    RepairVerdict.OTHER_SHAPE: (
        "has another shape: a value would be overwritten",
        "have another shape: a value would be overwritten",
    ),
    RepairVerdict.NOT_JSON: ("is not JSON that can be changed", "are not JSON that can be changed"),
    RepairVerdict.UNREADABLE: (
        "would not fit the type of its handler",
        "would not fit the type of their handler",
    ),
    RepairVerdict.WRONG_STATE: ("is not open", "are not open"),
    RepairVerdict.GONE: ("is no longer there", "are no longer there"),
}

Text = Annotated[str, Meta(max_length=LONGEST_PATCH)]


class RepairForm(Struct, frozen=True, kw_only=True):
    """The form that chooses letters and their change."""

    q: Annotated[str, Meta(max_length=MAX_TEXT)] = ""
    patch: Text = ""
    was: Text = ""
    text: bool = False  # words without a field are meant


class RepairLine(Struct, frozen=True, kw_only=True):
    """One repair in the list of those that somebody looked at lately."""

    path: str
    text: str
    query: str
    at: datetime


class NewPage(Struct, frozen=True, kw_only=True):
    """The form, what it finds, and what is wrong with it."""

    form: RepairForm
    edited: str  # the letter that the change was taken from
    edited_path: str
    counted: str
    problem: str  # of the search
    patch_problem: str
    word: str  # of the search, without a field
    lately: tuple[RepairLine, ...]


class Named(Struct, frozen=True):
    """A letter by its short id."""

    text: str
    path: str


class VerdictRow(Struct, frozen=True, kw_only=True):
    """The letters with one verdict."""

    kind: str
    title: str
    count: int
    letters: tuple[Named, ...]
    more: int


class Sample(Struct, frozen=True, kw_only=True):
    """What would change in one letter."""

    letter: Named
    changes: tuple[Changed, ...]


class RepairPage(Struct, frozen=True, kw_only=True):
    """One repair: how far it is, its verdicts, some differences, and what was done."""

    path: str
    stage: str  # judging, stopped, ready, nothing, applying, interrupted or done
    query: str
    total: int
    judged: int
    at: datetime
    patch: str
    was: str
    verdicts: tuple[VerdictRow, ...]
    changing: int
    samples: tuple[Sample, ...]
    more_path: str  # shows more differences
    why: str  # it ended early
    errand: str  # the path that stops it
    seen: int  # by the errand under way, of `of`
    of: int
    done: int
    told: str  # what was done
    replay_path: str
    undo: str  # the path that takes it back, if it went on in the background
    reason: str
    knows_handlers: bool
    approval: str


async def load_new(
    context: ServerContext,
    who: Identity,
    searching: Searching,
    form: RepairForm,
    *,
    edited: DeadLetter | None = None,
    problem: str = "",
    lately: Sequence[Repair] = (),
) -> NewPage:
    """Return the form, with the change of an edited letter if there is one."""
    if edited is not None:
        try:
            patch = patch_of(edited)
            form = RepairForm(q=form.q, patch=field_of(patch.text), was=field_of(patch.was_text))
        except Inexpressible as why:
            problem = f"This edit cannot be repeated as it is: {why}. Write the change by hand."
    else:
        form = RepairForm(
            q=form.q, patch=typed_again(form.patch), was=typed_again(form.was), text=form.text
        )
    counted, query_problem, word = "", "", ""
    try:
        node = parse(form.q)
        found = first_word(node)
        word = "" if found is None else str(found.text)
        if form.q.strip():
            count = await searching.count(of_sources(node, who.sources))
            number = many(count.letters, "letter")
            counted = number if count.is_all else f"≥ {number}"
    except (QueryError, ConfigError) as error:
        query_problem = sentence(str(error))
    return NewPage(
        form=form,
        edited="" if edited is None else edited.id[:_SHORT],
        edited_path="" if edited is None else path_to("letters", edited.id),
        counted=counted,
        problem=query_problem,
        patch_problem=problem,
        word=word,
        lately=tuple(_line(one) for one in lately),
    )


def _line(repair: Repair) -> RepairLine:
    stage = stage_of(repair)
    done = many(len(repair.done), "letter")
    told = {
        "judging": f"looking at {many(len(repair.ids), 'letter')}",
        "applying": f"{done} repaired so far",
        "interrupted": f"{done} repaired, not all were reached",
        "done": f"{done} repaired",
    }
    text = told.get(stage, f"would change {many(len(repair.changing), 'letter')}")
    return RepairLine(path=repair.path, text=text, query=repair.query, at=repair.at)


def stage_of(repair: Repair) -> str:
    """Return how far a repair is."""
    applying, judging = repair.applying, repair.judging
    if repair.result is not None:
        if applying is not None and applying.ended is None:
            return "applying"
        return "interrupted" if applying is not None and applying.ended_early else "done"
    if not repair.is_judged:
        return "judging" if judging is not None and judging.ended is None else "stopped"
    return "ready" if repair.changing else "nothing"


async def load_repair(context: ServerContext, repair: Repair, samples: int) -> RepairPage:
    """Return the page of a repair, with that many differences."""
    stage = stage_of(repair)
    changing = repair.changing
    found: list[RepairSample] = []
    if stage == "ready":
        found = await context.office.repairs.samples(changing[:samples], repair.patch)
    errand = repair.running
    ended = repair.applying if stage == "interrupted" else repair.judging
    more = min(samples + SAMPLES, MOST_SAMPLES)
    result = repair.result
    limit = context.settings.serve.approve_above
    return RepairPage(
        path=repair.path,
        stage=stage,
        query=repair.query,
        total=len(repair.ids),
        judged=repair.judged,
        at=repair.at,
        patch=field_of(repair.patch.text),
        was=field_of(repair.patch.was_text),
        verdicts=tuple(_verdicts(repair)),
        changing=len(changing),
        samples=tuple(_samples(found)),
        more_path=f"{repair.path}?samples={more}"
        if samples < more and samples < len(changing)
        else "",
        why=ended.ended_early if ended is not None and errand is None else "",
        errand=f"{errand.path}/stop" if errand is not None and not errand.stop else "",
        seen=0 if errand is None else errand.progress.seen,
        of=0 if errand is None else errand.total,
        done=len(repair.done),
        told=left(result.skipped) if result is not None else "",
        replay_path=path_to("replays", repair.replay) if repair.replay else "",
        undo=_undo(repair),
        reason=repair.reason,
        knows_handlers=context.office.repairs.checks_types,
        approval=f"Replays of more than {limit:,} letters need a second person; a repair does not."
        if limit
        else "",
    )


def _undo(repair: Repair) -> str:
    notice = None if repair.applying is None else repair.applying.notice
    return "" if notice is None else notice.undo


def left(skipped: dict[str, int]) -> str:
    """Return why letters were left as they are; nothing if none was."""
    return "; ".join(f"{count:,} {why}" for why, count in sorted(skipped.items()))


def _verdicts(repair: Repair) -> Sequence[VerdictRow]:
    rows = []
    for verdict in RepairVerdict:
        if not (count := repair.verdicts[verdict]):
            continue
        names = repair.named.get(verdict, [])[:NAMED]
        rows.append(
            VerdictRow(
                kind=verdict.value,
                title=_title(verdict, count, is_over=repair.result is not None),
                count=count,
                letters=tuple(_named(id_) for id_ in names),
                more=count - len(names),
            )
        )
    return rows


def _title(verdict: RepairVerdict, count: int, *, is_over: bool) -> str:
    if is_over and verdict is RepairVerdict.CHANGE:
        return "fitted the change"
    one, several = _TITLES[verdict]
    return one if count == 1 else several


def _named(id_: str) -> Named:
    return Named(id_[:_SHORT], path_to("letters", id_))


def _samples(found: Sequence[RepairSample]) -> Sequence[Sample]:
    most = _CHANGES // max(1, len(found))
    return [
        Sample(letter=_named(one.letter_id), changes=changed_parts(one.differences, most=most))
        for one in found
    ]


def command_of(query: str, patch: str, was: str) -> str:
    """Return the command that plans the same."""
    words = ["dlq", "repair", query or "QUERY", "--patch", patch or "PATCH"]
    return shlex.join([*words, *(["--was", was] if was else []), "--dry-run"])
