"""Letters that wait for the outcome of a replay, sent once more."""

from typing import Final

from deadletter.core.letter import By, State
from deadletter.office.batches import batched
from deadletter.office.choosing import Chosen

from .asking import agreed
from .desk import Desk
from .office import Office, SomeLetters
from .times import many

_NAMED: Final = 50  # letters in one search, which must not be too long
_WAITING: Final = f"is:{State.REPLAYING}"


async def stop_waiting(
    desk: Desk, office: Office, chosen: Chosen, by: By, *, yes: bool
) -> None:
    """
    Reopen those of the letters that wait for an outcome, so that they can be sent.

    Their copies may still be handled, and then the message is handled twice: somebody
    has to agree, however few they are.
    """
    ids = await _waiting(office.letters, chosen)
    if not ids:
        return
    they = "letter that waits" if len(ids) == 1 else "letters that wait"
    what = (
        f"stop waiting for the outcome of {len(ids):,} {they}, and send"
        f" {'it' if len(ids) == 1 else 'them'} again; a copy that is still on its way"
        " may be handled as well"
    )
    agreed(desk, what, yes=yes, count=len(ids))
    result = await office.letters.reopen(ids, by, unconfirmed=True)
    if not desk.as_json:
        desk.tell(f"{many(result.moved, 'letter')} reopened.")


async def _waiting(letters: SomeLetters, chosen: Chosen) -> list[str]:
    if chosen.query:
        found = frozenset(await letters.freeze(f"{_WAITING} ({chosen.query})"))
        return [id_ for id_ in chosen.ids if id_ in found]
    ids: list[str] = []
    for some in batched(chosen.ids, _NAMED):
        ids += await letters.freeze(f"{_WAITING} id:[{','.join(some)}]")
    return ids
