"""Long lists: read page by page, and never cut silently."""

import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

from deadletter.ports import Page

from .desk import Desk

T = TypeVar("T")
Read = Callable[[int, str | None], Awaitable[tuple[Sequence[T], str | None]]]
"""Some of a list from somewhere on, and where it goes on if there is more."""

PAGE: Final = 500  # asked for at once


async def pages(
    read: Read[T], most: int | None, after: str | None
) -> AsyncIterator[tuple[Sequence[T], str | None]]:
    """A list, up to `most` things of it, each page with where it ended."""
    left = most
    while True:
        some, after = await read(PAGE if left is None else min(PAGE, left), after)
        yield some, after
        left = None if left is None else left - len(some)
        if after is None or left == 0:
            return


async def one_by_one(
    read: Callable[[str, int], Awaitable[Sequence[T]]],
    name: Callable[[T], str],
    *,
    size: int = PAGE,
) -> AsyncGenerator[T]:
    """All of a list whose pages begin with a name, as those of the queue server do."""
    last = ""
    while True:
        page = await read(last, size)
        for one in page:
            if name(one) != last:  # which ended the page before
                yield one
        if len(page) < size:
            return
        last = name(page[-1])


def tell_how_far(desk: Desk, page: Page) -> None:
    """Say how far a search has looked that ended before it had enough."""
    if page.letters is None or page.back_to is None:
        return
    desk.warn(
        f"Looked at {page.looked_at:,} of {page.letters:,} letters, back to"
        f" {page.back_to:%Y-%m-%d %H:%M:%S} UTC."
    )


def tell_of_more(
    desk: Desk, words: Sequence[str], limit: int | None, after: str | None
) -> None:
    """Say how to go on with a list that these words began, if there is more of it."""
    if after is None:
        return
    form = ["--json"] if desk.as_json else []
    most = [] if limit is None else ["-n", str(limit)]
    again = shlex.join([*words, *form, *most, "--after", after])
    desk.warn(f"There is more: {desk.dlq} {again}")
