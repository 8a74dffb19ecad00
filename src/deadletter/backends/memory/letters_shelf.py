"""Letters on a shelf: what is kept, counted and audited, as plain objects."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct, structs

from deadletter.core.audit import DIED_AGAIN, act, seal
from deadletter.core.errors import NotFound
from deadletter.core.grouping import Asked, as_of, regressed, regresses, said
from deadletter.core.keeping import Filed, Known
from deadletter.core.letter import (
    AuditEntry,
    By,
    DeadLetter,
    Group,
    LetterHead,
    Standing,
    State,
)


class OnShelf(Struct, kw_only=True):
    """A letter that is there: as it came, and what is known of it now."""

    seq: int
    letter: DeadLetter
    known: Known

    @property
    def head(self) -> LetterHead:
        """Its head as it is now."""
        return self.known.head

    def whole(self) -> DeadLetter:
        """All of it as it is now."""
        known = self.known
        return structs.replace(
            self.letter, head=known.head, history=known.history, frame=known.frame
        )

    def change(self, **changes: object) -> None:
        """Change something about its head, which is then another revision."""
        head = structs.replace(self.head, revision=self.head.revision + 1, **changes)
        self.known = structs.replace(self.known, head=head)


class Shelf:
    """All letters of an office, and its audit."""

    def __init__(self) -> None:
        self.by_id: dict[str, OnShelf] = {}
        self.by_seq: dict[int, OnShelf] = {}
        self.groups: dict[str, Group] = {}
        self.entries: list[AuditEntry] = []
        self.tally: Counter[str] = Counter()  # kept, purged, expired

    def given(self, ids: Iterable[str]) -> list[OnShelf]:
        """The letters of these ids, each once, in this order."""
        return [self.by_id[id_] for id_ in dict.fromkeys(ids) if id_ in self.by_id]

    def newest_first(self) -> list[OnShelf]:
        """All letters in the order of every list."""
        return sorted(
            self.by_id.values(),
            key=lambda kept: (kept.head.dead_at, kept.seq),
            reverse=True,
        )

    def put(self, filed: Filed) -> None:
        """Put away what keeping one letter has changed."""
        if filed.died:
            self._count_death(filed.letter)
        if filed.after is None:
            return
        if filed.before is None:
            self.tally["kept"] += 1
            seq = self.tally["kept"]
            kept = OnShelf(seq=seq, letter=filed.letter, known=filed.after)
            self.by_id[filed.id] = self.by_seq[seq] = kept
        else:
            # A cap is looked up anew each time, by whoever looks a letter up.
            self.by_id[filed.id].known = structs.replace(filed.after, cap=None)

    def remove(self, letters: Sequence[OnShelf], fate: str) -> None:
        """Take letters away for good, counted."""
        for kept in letters:
            del self.by_id[kept.head.id], self.by_seq[kept.seq]
        self.tally[fate] += len(letters)

    def record(
        self, action: str, target: str, by: By, *, at: datetime, detail: str = ""
    ) -> None:
        """Write an act at the end of the audit."""
        self.audit([act(action, target, by, at=at, detail=detail)])

    def audit(self, acts: Iterable[AuditEntry]) -> None:
        """Write acts at the end of the audit."""
        last = self.entries[-1] if self.entries else None
        self.entries += seal(
            acts, seq=last.seq if last else 0, previous=last.hash if last else ""
        )

    def counts(self) -> dict[str, dict[State, int]]:
        """How many letters of each state, by source."""
        found: dict[str, dict[State, int]] = {}
        for kept in self.by_id.values():
            states = found.setdefault(kept.head.source, {})
            states[kept.head.state] = states.get(kept.head.state, 0) + 1
        return found

    def listed(self, asked: Asked) -> list[Group]:
        """Groups, latest or largest first."""
        start = asked.start
        found = [
            group
            for group in self._counted_groups(asked.now)
            if asked.source in {None, group.source}
            and (group.open or not asked.only_open)
            and (asked.statuses is None or group.standing.status in asked.statuses)
            and group.fingerprint.startswith(asked.named)
            and (start is None or asked.place(group) < start)
        ]
        return sorted(found, key=asked.place, reverse=True)[: asked.limit]

    def stand(self, fingerprint: str, standing: Standing) -> Standing:
        """Say how a group stands; how it stood before."""
        group = self.groups.get(fingerprint)
        if group is None:
            raise NotFound(f"there is no group {fingerprint}")
        self.groups[fingerprint] = structs.replace(group, standing=standing)
        return group.standing

    def regress(self, deaths: Sequence[LetterHead], now: datetime) -> None:
        """Resolved groups that these deaths belong to may not be resolved after all."""
        for fingerprint in dict.fromkeys(head.fingerprint for head in deaths):
            group = self.groups[fingerprint]
            own = [head for head in deaths if head.fingerprint == fingerprint]
            if not regresses(group.standing, own):
                continue
            after = regressed(group.standing, now)
            detail = said(self.stand(fingerprint, after), after)
            self.record("regress", fingerprint, DIED_AGAIN, at=now, detail=detail)

    def blank(self, names: set[str]) -> list[str]:
        """Delete what groups without letters say of them; which ones these were."""
        left = {kept.head.fingerprint for kept in self.by_id.values()}
        gone = []
        for name in sorted(names - left):
            group = self.groups[name]
            if group.text or group.frame or group.code:
                self.groups[name] = structs.replace(group, text="", frame="", code="")
                gone.append(name)
        return gone

    def _counted_groups(self, now: datetime) -> list[Group]:
        """All groups with their counts."""
        states: dict[str, Counter[State]] = {}
        for kept in self.by_id.values():
            states.setdefault(kept.head.fingerprint, Counter())[kept.head.state] += 1
        return [
            structs.replace(
                group,
                counts=dict(states.get(fingerprint, {})),
                standing=as_of(group.standing, now),
            )
            for fingerprint, group in self.groups.items()
        ]

    def _count_death(self, letter: DeadLetter) -> None:
        head = letter.head
        group = self.groups.get(head.fingerprint)
        if group is None:
            group = Group(
                fingerprint=head.fingerprint,
                source=head.source,
                error_type="",
                text="",
                first_seen=head.dead_at,
                last_seen=head.dead_at,
                counts={},
                total=0,
            )
        if head.dead_at >= group.last_seen:
            group = structs.replace(
                group,
                error_type=head.error_type,
                text=head.error_text,
                frame=letter.frame,
                trouble=head.trouble,
                code=head.code,
                last_seen=head.dead_at,
            )
        self.groups[head.fingerprint] = structs.replace(
            group, first_seen=min(group.first_seen, head.dead_at), total=group.total + 1
        )
