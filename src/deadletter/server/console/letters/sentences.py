"""Sentences about acts: what was done, and what was left alone for what reason."""

from msgspec import structs

from deadletter.core.text import many
from deadletter.office.verbs import Moved, Verb
from deadletter.server.console import words


def left_alone(result: Moved) -> str:
    """Return why letters were left alone; nothing if all of them changed."""
    left = sum(result.skipped.values())
    if not left:
        return ""
    if len(result.skipped) == 1:
        ((why, count),) = result.skipped.items()
        return f"{many(left, 'letter')} left alone: {_reason(why, count, alone=True)}."
    reasons = [_reason(why, count) for why, count in sorted(result.skipped.items())]
    return f"{many(left, 'letter')} left alone: {words.joined(reasons)}."


def _reason(why: str, count: int, *, alone: bool = False) -> str:
    number = "" if alone else f"{count:,} "
    if why.startswith("is "):
        are = "is" if count == 1 else "are"
        return f"{'it ' if alone and count == 1 else 'they ' if alone else number}{are} {why[3:]}"
    return f"{number}{why}"


def done_sentence(verb: Verb, result: Moved) -> str:
    """Return what an act did: `244 letters discarded. 12 letters left alone: …`."""
    return _said(f"{many(result.moved, 'letter')} {verb.done}", result)


def noted_sentence(result: Moved) -> str:
    """Return what became of a note."""
    return _said(f"Note added to {many(result.moved, 'letter')}", result)


def nothing_sentence(done: str, result: Moved) -> str:
    """Return why an act did nothing."""
    why = left_alone(result)
    return f"nothing was {done}. {why}" if why else f"nothing was {done}"


def _said(done: str, result: Moved) -> str:
    return f"{done}. {left_alone(result)}".strip()


def with_missing(result: Moved, missing: int) -> Moved:
    """Return a result that counts letters as well that are not there for this person."""
    if missing <= 0:
        return result
    skipped = dict(result.skipped)
    skipped["no longer there"] = skipped.get("no longer there", 0) + missing
    return structs.replace(result, asked=result.asked + missing, skipped=skipped)
