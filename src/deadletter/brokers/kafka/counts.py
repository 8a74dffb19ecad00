"""Counts of the messages in mailboxes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from deadletter.ports.broker import QueueInfo, QueueOptions
from deadletter.ports.features import Clock

from .address import Address
from .group_member import GroupMember
from .partitions import Entry, Place, Progress
from .records import micros
from .topics import Groups, Topics


class Counting:
    """Counts messages of mailboxes, from the ends and the progress of their partitions."""

    def __init__(self, address: Address, topics: Topics, groups: Groups, clock: Clock) -> None:
        self._address = address
        self._topics = topics
        self._groups = groups
        self._clock = clock

    async def count(
        self,
        queues: Sequence[QueueOptions],
        members: Mapping[str, GroupMember],
        partitions: Mapping[str, int],
    ) -> list[QueueInfo]:
        """
        Count mailboxes; our own members know their partitions exactly.

        A record that is requeued meanwhile may count twice, and is never left out: it
        arrives before the commit, so commits are read first and ends last.
        """
        for queue in queues:
            if queue.name in members:
                await members[queue.name].catch_up()
        places = {queue.name: self._places(queue.name, partitions) for queue in queues}
        everywhere = [place for theirs in places.values() for place in theirs]
        starts = await self._topics.starts(everywhere)
        worked: dict[Place, Progress | None] = {}
        while True:
            ends = await self._topics.ends(everywhere)
            found = {queue.name: _Found(micros(self._clock.now())) for queue in queues}
            others = {
                name: [
                    place
                    for place in theirs
                    if not found[name].saw(
                        members.get(name), place, ends[place], is_retry=self._is_retry(name, place)
                    )
                ]
                for name, theirs in places.items()
            }
            asking = {
                name: [place for place in theirs if place not in worked]
                for name, theirs in others.items()
            }
            if not any(asking.values()):
                break
            known = await self._worked(asking)
            asked = [place for theirs in asking.values() for place in theirs]
            worked |= {place: known.get(place) for place in asked}
        for name, theirs in others.items():
            for place in theirs:
                progress = worked[place] or Progress(starts[place])
                progress.skip(progress.base, starts[place])
                is_retry = self._is_retry(name, place)
                found[name].guess(progress, ends[place], is_retry=is_retry)
        return [found[queue.name].info(queue) for queue in queues]

    def _is_retry(self, mailbox: str, place: Place) -> bool:
        return place[0] == self._address.retry_topic(mailbox)

    def _places(self, mailbox: str, partitions: Mapping[str, int]) -> list[Place]:
        topics = self._address.topic(mailbox), self._address.retry_topic(mailbox)
        return [(topic, number) for topic in topics for number in range(partitions.get(topic, 0))]

    async def _worked(self, places: Mapping[str, Sequence[Place]]) -> dict[Place, Progress]:
        """Return the progress of the groups of these mailboxes."""
        by_group: dict[str, list[Place]] = {}
        for mailbox, theirs in places.items():
            for place in theirs:
                group = self._address.group_of(mailbox)
                if self._is_retry(mailbox, place):
                    group = self._address.retry_group_of(mailbox)
                by_group.setdefault(group, []).append(place)
        worked: dict[Place, Progress] = {}
        for group, asked in by_group.items():
            worked |= await self._groups.progress(group, asked)
        return worked


def present(info: QueueInfo) -> int:
    """Return the number of messages in a mailbox, in any state."""
    return info.ready + info.delayed + info.claimed + info.suspects


class _Found:
    """Counts of one mailbox, as they are collected."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._counts: Counter[str] = Counter()
        self._tally: Counter[str] = Counter()
        self._oldest: tuple[int, int, datetime] | None = None

    def saw(self, member: GroupMember | None, place: Place, end: int, *, is_retry: bool) -> bool:
        """Count a partition if it is assigned to us; False if it is not."""
        if member is None:
            return False
        with member.lock:
            assignment = member.backlog.assignments.get(place)
            if assignment is None:
                return False
            returned = set(member.backlog.returned)
            for entry in assignment.entries.values():
                self._see(entry, returned=entry in returned)
            self._counts["delayed" if is_retry else "ready"] += max(0, end - assignment.position)
            self._tally.update(assignment.progress.tally)
        return True

    def _see(self, entry: Entry, *, returned: bool) -> None:
        if entry.ended:
            return
        if entry.token is not None:
            self._counts["claimed"] += 1
        elif entry.trail.suspect or returned:
            self._counts["suspects"] += 1
        else:
            self._counts["ready" if entry.due <= self._now else "delayed"] += 1
            head = (entry.due, entry.seq, entry.message.sent_at)
            self._oldest = min(self._oldest or head, head)

    def guess(self, progress: Progress, end: int, *, is_retry: bool) -> None:
        """Count a partition of another member, or of none."""
        held = progress.claims
        self._counts["claimed"] += held
        waiting = max(0, progress.open_until(end) - held)
        self._counts["delayed" if is_retry else "ready"] += waiting
        self._tally.update(progress.tally)

    def info(self, options: QueueOptions) -> QueueInfo:
        counts = self._counts
        # Sent is not counted: it is what is present and what has left.
        sent = counts.total() + self._tally.total()
        return QueueInfo(
            options=options,
            ready=counts["ready"],
            delayed=counts["delayed"],
            claimed=counts["claimed"],
            suspects=counts["suspects"],
            oldest_at=None if self._oldest is None else self._oldest[2],
            tally={"sent": sent, **self._tally},
        )
