"""The way to the service: calls, ten entries at a time, errors in our words."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from hashlib import md5
from typing import Any, Final, TypeAlias

from deadletter.core.errors import BackendError, Unavailable

from .errors import KNOWN, entry_error, translated

Entry: TypeAlias = dict[str, Any]

BATCH: Final = 10  # entries
_BATCH_BYTES: Final = 786_432  # SQS takes 1 MiB, but JSON makes more of it
_PAUSE: Final = 0.1  # seconds, doubled from try to try
_LIMIT: Final = 30.0  # seconds for a whole call, with its wait for a connection


class Link:
    """Two clients of one service, so that those who wait hold up nobody's calls."""

    def __init__(self, calling: Any, waiting: Any) -> None:
        self._calling = calling
        self._waiting = waiting

    async def call(self, verb: str, **arguments: Any) -> Any:
        """Call the service."""
        return await _called(self._calling, verb, arguments)

    async def wait(self, verb: str, **arguments: Any) -> Any:
        """Call the service, which may take its time to answer."""
        wait = float(arguments.get("WaitTimeSeconds", 0))
        return await _called(self._waiting, verb, arguments, wait)

    async def batch(
        self,
        verb: str,
        url: str,
        entries: Sequence[Entry],
        *,
        size: Callable[[Entry], int] = lambda _: 0,
        in_order: bool = False,
        tries: int = 1,
    ) -> list[BackendError | None]:
        """
        Have entries done ten at a time, side by side unless order matters.

        Says for each why it was not done. Those that failed only for now are tried
        so often; in order, nothing overtakes a group that failed.
        """
        failures: list[BackendError | None] = [None] * len(entries)
        left = list(range(len(entries)))
        for again in range(tries):
            if again:
                await asyncio.sleep(_PAUSE * 2**again)
            groups = list(_grouped(left, lambda i: size(entries[i])))
            if in_order:
                await self._one_by_one(verb, url, entries, groups, failures)
            else:
                calls = [self._some(verb, url, entries, g, failures) for g in groups]
                await asyncio.gather(*calls)
            left = [i for i in left if isinstance(failures[i], Unavailable)]
            if not left:
                break
        return failures

    async def _one_by_one(
        self,
        verb: str,
        url: str,
        entries: Sequence[Entry],
        groups: Sequence[Sequence[int]],
        failures: list[BackendError | None],
    ) -> None:
        for number, group in enumerate(groups):
            await self._some(verb, url, entries, group, failures)
            failed = next((failures[i] for i in group if failures[i]), None)
            if failed is not None:
                for later in groups[number + 1 :]:
                    for i in later:
                        failures[i] = failed
                return

    async def _some(
        self,
        verb: str,
        url: str,
        entries: Sequence[Entry],
        group: Sequence[int],
        failures: list[BackendError | None],
    ) -> None:
        asked = [{**entries[i], "Id": str(i)} for i in group]
        try:
            answer = await self.call(verb, QueueUrl=url, Entries=asked)
        except BackendError as error:
            for i in group:
                failures[i] = error
            return
        for i in group:
            failures[i] = None
        for done in answer.get("Successful", ()):
            i = int(done["Id"])
            body = entries[i].get("MessageBody")
            if body is not None and is_other(done.get("MD5OfMessageBody"), body):
                failures[i] = Unavailable("SQS has another body than was sent to it")
        for failed in answer.get("Failed", ()):
            failures[int(failed["Id"])] = entry_error(failed)


def is_other(digest: str | None, body: str) -> bool:
    """Tell whether SQS has another body, by its digest; botocore does not look."""
    if digest is None:
        return False
    data = body.encode("utf-8", "surrogatepass")
    return md5(data, usedforsecurity=False).hexdigest() != digest


async def _called(
    client: Any, verb: str, arguments: dict[str, Any], wait: float = 0.0
) -> Any:
    try:
        # The library's own timeouts are for each piece that is read.
        async with asyncio.timeout(_LIMIT + wait):
            return await getattr(client, verb)(**arguments)
    except KNOWN as error:
        raise translated(error) from error


def _grouped(
    numbers: Sequence[int], size: Callable[[int], int]
) -> Iterator[Sequence[int]]:
    group: list[int] = []
    room = _BATCH_BYTES
    for number in numbers:
        if group and (len(group) == BATCH or size(number) > room):
            yield group
            group, room = [], _BATCH_BYTES
        group.append(number)
        room -= size(number)
    if group:
        yield group
