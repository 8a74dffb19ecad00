"""dlq report: what happened in a shift, for the hand-over."""

from deadletter.office.deaths import moment
from deadletter.office.triage.shift_report import markdown

from .desk import AtDesk


async def report(*, since: str = "8h", desk: AtDesk) -> None:
    """
    Print what happened in a shift as Markdown: what came, what was done, what waits.

    Args:
        since: The beginning of the shift: a time, or how long ago, such as 8h.
    """
    begin = moment(since, desk.clock.now())
    async with desk.office() as office:
        found = await office.triage.report(begin)
    if desk.as_json:
        desk.document(found)
        return
    desk.out.print(markdown(found).rstrip(), markup=False, highlight=False, soft_wrap=True)
