"""Replays in words: verdicts, outcomes, stages, and what will happen."""

from itertools import pairwise
from typing import Final

from deadletter.core.campaign import Campaign, CampaignState, Care, Outcome, Verdict
from deadletter.core.text import many
from deadletter.office.aftermath import Aftermath
from deadletter.office.progress import ReplayProgress

VERDICTS: Final = {
    Verdict.READY: ("ready to be sent", ""),
    Verdict.ORDERED: ("newer messages of their key may have gone ahead", ""),
    Verdict.CREDENTIALS: ("the credentials in their headers may have expired", ""),
    Verdict.NO_MAILBOX: ("their mailbox does not exist yet", "It is created."),
    Verdict.EXPIRED: ("past their expiry", "They are sent without it."),
    Verdict.PROCESSED: ("already processed, the ledger says", "Sent, they would be done twice."),
    Verdict.UNREADABLE: ("the handler cannot read their body", "Sent, they would fail again."),
    Verdict.ID_IN_USE: ("another job has their id", "They are sent under a new one."),
    Verdict.ELSEWHERE: ("drained from another server", "They cannot go back this way."),
    Verdict.PAST_CAP: ("replayed too often", "They are quarantined instead."),
    Verdict.WRONG_STATE: ("not open any more", "They stay as they are."),
}
"""What each verdict means, and what follows from it."""

OUTCOMES: Final = {
    Outcome.CONFIRMED: "handled",
    Outcome.PRESUMED: "presumed handled",
    Outcome.FAILED: "failed again",
    Outcome.REFUSED: "refused",
    Outcome.SENT: "on its way",
    Outcome.SENDING: "being sent",
    Outcome.WAITING: "waits for its key",
    Outcome.UNCONFIRMED: "no outcome",
    Outcome.PLANNED: "to be sent",
    Outcome.HELD: "held back",
    Outcome.SKIPPED: "skipped",
}


def standing(campaign: Campaign, progress: ReplayProgress) -> str:
    """Return the name of the badge of a replay."""
    if progress.pause is not None and progress.pause.by_itself:
        return "halted"
    return campaign.state.value


def percent(share: float) -> str:
    """Return a share as people write it: `10%`."""
    return f"{share * 100:.3g}%"


def span(seconds: float) -> str:
    """Return a length of time with its two largest units: `4 min 12 s`."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    hours, rest = divmod(whole, 3_600)
    return f"{hours} h {rest // 60} min" if rest >= 60 else f"{hours} h"


def first_button(care: Care, total: int) -> str:
    """Return what the button says that starts a replay: what is sent first."""
    first = care.steps(total)[0] if total else 0
    if first < total:
        return f"Send the first {first:,}"
    return f"Send {many(total, 'letter')}" if total == 1 else f"Send all {total:,} letters"


def what_will_happen(
    care: Care, total: int, rate: float | None, *, keyed: bool = False, reports: bool = True
) -> tuple[str, ...]:
    """Return what a replay of so many letters does, sentence by sentence."""
    if not total:
        return ("Nothing would be sent.",)
    ends = care.steps(total)
    said = []
    if len(ends) == 1:
        said.append(f"{_all(total)} now, the oldest first.")
    else:
        said.append(f"{many(ends[0], 'letter')} {_go(ends[0])} now, the oldest first.")
        allowed = int(ends[0] * care.share)
        good = f"If {'none' if not allowed else f'at most {allowed:,}'} of them"
        sizes = [after - before for before, after in pairwise(ends)]
        then = [f"{size:,} more" for size in sizes[:-1]]
        then.append(f"the other {sizes[-1]:,}")
        said.append(f"{good} fails again, {', then '.join(then)} follow.")
    if care.share < 1:
        said.append(f"It stops by itself when more than {percent(care.share)} fail again.")
    else:
        said.append("It goes on however many fail again.")
    if rate is not None:
        seconds = span(total / rate)
        said.append(f"At most {rate:,.6g} a second are sent: it takes at least {seconds}.")
    if keyed and care.key_order:
        said.append("Letters of one key go one after the other, each when the last is handled.")
    elif keyed:
        said.append("Letters of one key do not wait for each other.")
    said.append(
        "A worker has to handle them; without any outcome it pauses after 15 minutes."
        if reports
        else "Nobody reports what becomes of them: those that do not die again count as handled."
    )
    return tuple(said)


def headline(campaign: Campaign, progress: ReplayProgress) -> str:
    """Return the sentence at the top of a replay that was started."""
    sent = f"{progress.sent:,} of {progress.total:,} sent"
    parts = [sent, f"{progress.handled:,} handled"]
    if progress.failed:
        parts.append(f"{progress.failed:,} failed again")
    if progress.on_the_way:
        parts.append(f"{progress.on_the_way:,} on their way")
    if campaign.state is CampaignState.DONE:
        return report(progress)
    return " · ".join(parts)


def report(progress: ReplayProgress, aftermath: Aftermath | None = None) -> str:
    """Return the sentence about a replay that has ended."""
    within = f" in {span(progress.seconds)}" if progress.seconds is not None else ""
    parts = [f"{progress.handled:,} handled"]
    if progress.failed:
        parts.append(f"{progress.failed:,} failed again")
        if aftermath is not None and aftermath.looked_at == progress.failed:
            parts[-1] += f" ({aftermath.same:,} the same, {aftermath.other:,} another error)"
    rest = progress.sent - progress.handled - progress.failed - progress.on_the_way
    if rest > 0:
        parts.append(f"{rest:,} without an outcome")
    if progress.on_the_way:
        parts.append(f"{progress.on_the_way:,} on their way")
    if progress.left_out:
        parts.append(f"{progress.left_out:,} left out")
    return f"{progress.sent:,} sent{within}: {', '.join(parts)}."


def order_kept(campaign: Campaign) -> str:
    """Return how letters of one key are sent, if some of them wait or are held back."""
    waiting, held = (campaign.counts.get(one, 0) for one in (Outcome.WAITING, Outcome.HELD))
    if held:
        they = "is" if held == 1 else "are"
        return (
            f"{many(held, 'letter')} {they} held back: one before them of their key was not"
            " handled, and the order of a key is kept."
        )
    if waiting:
        letters = many(waiting, "letter waits", "letters wait")
        return f"{letters} for the one before of their key: the order of a key is kept."
    return ""


def go_on(campaign: Campaign, progress: ReplayProgress) -> str:
    """Return what the button says that continues a replay."""
    first = campaign.care.first
    if first is None or first >= progress.left:
        return f"Send the other {progress.left:,}"
    return f"Send the next {first:,}"


def bar_label(progress: ReplayProgress) -> str:
    """Return what the bar shows, for those who do not see it."""
    return (
        f"{progress.handled:,} of {progress.total:,} handled, {progress.on_the_way:,} on their"
        f" way, {progress.failed:,} failed again, {progress.left:,} to be sent"
    )


def _all(total: int) -> str:
    return "1 letter goes" if total == 1 else f"All {total:,} letters go"


def _go(count: int) -> str:
    return "goes" if count == 1 else "go"
