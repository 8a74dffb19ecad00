"""
What the five systems are asked for: every number there is, and how binding it is.

The ledgers (`relayer.toml` and so on) say what each of these lines means and what
proves it. They cannot leave one out or take one less seriously than it was given.
"""

# ruff: noqa: INP001 -- a script's module, not a package

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

UNLESS_SAID: Final = "MUST"


class Given(NamedTuple):
    """One system: `R<seed>.1` to `R<seed>.<last>`, and the defects to stay clear of."""

    package: str
    seed: int
    last: int
    tags: Mapping[str, str]  # where it is not MUST
    claims: Mapping[int, int]  # a defect of the origin, and in how many parts at least
    internal: str = ""  # tied to how the origin's source is laid out

    def lines(self) -> dict[str, frozenset[str]]:
        """Every number in order, with the tags it may have: mostly one."""
        lines = {f"R{self.seed}.{n}": {UNLESS_SAID} for n in range(1, self.last + 1)}
        for tag, numbers in self.tags.items():
            for n in _numbers(numbers):
                lines[f"R{self.seed}.{n}"] = set(tag.split("/"))
        return {number: frozenset(tags) for number, tags in lines.items()}

    def is_internal(self, number: str) -> bool:
        """Whether only its behaviour counts, if anything of it does."""
        return number in {f"R{self.seed}.{n}" for n in _numbers(self.internal)}


SYSTEMS: Final = (
    Given(
        package="relayer",
        seed=0,
        last=114,
        tags={
            "INFO": "1-3 57 69 114",
            "SHOULD": "11 78-81 109 110",
            "MUST NOT": "28-32",
            "FUTURE": "22",
            "MAY/FUTURE": "33-35",
        },
        internal="70-73 75 78-82",
        claims={10: 3},
    ),
    Given(
        package="pipeline",
        seed=1,
        last=52,
        tags={"INFO": "22 35 40 46 52", "SHOULD": "51", "FUTURE": "41-45"},
        claims={7: 4, 8: 1},
    ),
    Given(
        package="leasequeue",
        seed=2,
        last=131,
        tags={
            "INFO": "4 5 8-11 40 43 44 73 74 87 88 126-128 130 131",
            "MUST NOT": "14 24-26 28 46",
            "SHOULD": "125",
        },
        internal="42 47 55",
        claims={1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 3},
    ),
    Given(
        package="agents",
        seed=3,
        last=128,
        tags={
            "INFO": "127 128",
            "SHOULD": "4 5 55-57 65 66 70 75 89 102-109 114-118 120 121",
            "MUST NOT": "35 64 119",
            "MAY": "67 111-113",
        },
        claims={9: 3},
    ),
    Given(package="courier", seed=4, last=59, tags={"INFO": "58 59", "MAY": "19"}, claims={11: 7}),
)


def _numbers(text: str) -> Iterator[int]:
    """`1-3 57` is 1, 2, 3 and 57."""
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
