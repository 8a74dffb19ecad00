"""Deaths over time as small pictures: one line for each row, and bars by version."""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup, escape
from msgspec import Struct

from deadletter.core.deaths import told
from deadletter.core.text import clean, cut

LOOKS: Final = 6
"""The looks of series; the last one is for all others together."""

_STEP: Final = 10  # width of a step
_LINE_HEIGHT: Final = 20
_BAR_HEIGHT: Final = 100
_LONGEST: Final = 60  # characters of a name


class Series(Struct, frozen=True):
    """The numbers of one name by step; `look` is its colour, from 1 to `LOOKS`."""

    name: str
    numbers: tuple[int, ...]
    look: int

    @property
    def total(self) -> int:
        """Return the sum of the numbers."""
        return sum(self.numbers)


def spark(numbers: Sequence[int]) -> Markup:
    """Return numbers an hour as a small line, with the same in words for screen readers."""
    most = max(numbers, default=0) or 1
    width = max(len(numbers) - 1, 1) * _STEP
    points = " ".join(
        f"{place * _STEP},{_LINE_HEIGHT - number * _LINE_HEIGHT // most}"
        for place, number in enumerate(numbers)
    )
    kind = "spark" if any(numbers) else "spark none"
    return Markup(
        '<svg class="{kind}" role="img" aria-label="{label}" viewBox="0 -2 {width} {height}"'
        ' preserveAspectRatio="none"><polyline points="{points}"></polyline></svg>'
    ).format(
        kind=kind, label=escape(told(numbers)), width=width, height=_LINE_HEIGHT + 4, points=points
    )


def bars(series: Sequence[Series], label: str) -> Markup:
    """Return series as bars on top of each other; the label says what they show."""
    steps = max((len(one.numbers) for one in series), default=0)
    sums = [sum(one.numbers[place] for one in series) for place in range(steps)]
    most = max(sums, default=0) or 1
    gap = 0 if steps > 100 else 1
    below = [0] * steps
    paths = []
    for one in series:
        path = "".join(
            f"M{place * _STEP + gap} {most - below[place]}h{_STEP - 2 * gap}v{-n}"
            f"h{2 * gap - _STEP}z"
            for place, n in enumerate(one.numbers)
            if n
        )
        below = [low + n for low, n in zip(below, one.numbers, strict=True)]
        name = escape(clean(cut(one.name, _LONGEST)))
        paths.append(
            Markup('<path class="s{look}" d="{path}"><title>{name}</title></path>').format(
                look=one.look, path=path, name=name
            )
        )
    return Markup(
        '<svg class="deaths" role="img" aria-label="{label}" viewBox="0 0 {width} {height}"'
        ' preserveAspectRatio="none">{paths}</svg>'
    ).format(
        label=escape(clean(label)),
        width=max(steps, 1) * _STEP,
        height=most,
        paths=Markup("").join(paths),
    )
