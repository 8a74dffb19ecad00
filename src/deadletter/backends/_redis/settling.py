"""Giving deliveries up, a batch in one step; safe to repeat when an answer is lost."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from deadletter.ports.broker import Acked, Released, Settlement

from .link import Argument, surely
from .scripts import Script
from .times import seconds

Receipt: TypeAlias = tuple[bytes, str]  # what it is called there, token

_UNCLEAR: Final = 10_000  # settlements to remember whose answer got lost


class Settling:
    """Settles what was claimed from one mailbox."""

    def __init__(
        self,
        ask: Callable[..., Awaitable[Any]],
        script: Script,
        *before: Argument,
        with_ends: bool = False,
    ) -> None:
        self._ask = ask
        self._script = script
        self._before = before  # what the script is told first
        self._with_ends = with_ends  # whether it is told how each has ended
        self._unclear: set[Receipt] = set()

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Forget or hand back; says for each if it was ours."""
        if not self._unclear:
            return await self._settle(settlements, again=False)
        answers: dict[int, bool] = {}
        for again in (True, False):
            places = [
                place
                for place, settlement in enumerate(settlements)
                if (settlement.delivery.receipt in self._unclear) is again
            ]
            some = [settlements[place] for place in places]
            answers |= zip(places, await self._settle(some, again=again), strict=True)
        self._unclear.difference_update(s.delivery.receipt for s in settlements)
        return [answers[place] for place in range(len(settlements))]

    async def _settle(
        self, settlements: Sequence[Settlement], *, again: bool
    ) -> list[bool]:
        if not settlements:
            return []
        args = (*self._before, *_arguments(settlements, with_ends=self._with_ends))
        try:
            said = await surely(
                lambda repeated: self._ask(self._script, int(again or repeated), *args)
            )
        except BaseException:
            # Unsure, or cancelled while it goes on.
            if len(self._unclear) < _UNCLEAR:
                self._unclear.update(s.delivery.receipt for s in settlements)
            raise
        return [answer == 1 for answer in said]


def _arguments(settlements: Sequence[Settlement], *, with_ends: bool) -> list[Argument]:
    """Runs of the same token and fate, in the order given."""
    args: list[Argument] = []
    for (token, fate), run in groupby(settlements, _kind):
        given = list(run)
        args += token, fate, len(given)
        for settlement in given:
            args.append(settlement.delivery.receipt[0])
            if isinstance(settlement, Released):
                args += _tail(settlement)
            elif with_ends:
                args += settlement.result or b"", settlement.history or ""
    return args


def _kind(settlement: Settlement) -> tuple[str, str]:
    fate = settlement.fate.value if isinstance(settlement, Acked) else "release"
    return settlement.delivery.receipt[1], fate


def _tail(released: Released) -> tuple[Argument, ...]:
    # Its handler has run and its worker lives: it is proven. What comes back
    # unrun, and so uncharged and without a story, is not.
    still_suspect = not released.charged and released.history is None
    return (
        seconds(released.delay),
        int(not released.charged),
        int(still_suspect),
        int(released.history is not None),
        released.history or "",
    )
