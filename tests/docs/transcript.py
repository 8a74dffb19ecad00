"""What a page shows of a command, held against what it says now."""

import re

_DEEP = " " * 22  # where a story goes on, below its times
ANYTHING = "…"  # on a line of its own: whatever comes here

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}(?:-[0-9a-f]{4}){0,2}(?:-[0-9a-f]{12})?\b")
# What differs from run to run and from machine to machine.
_VARIES = (
    (re.compile(r'\.py", line \d+'), '.py", line'),
    (re.compile(r"\d{4}-\d\d-\d\d(?=[ T])"), "DAY"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+ (?:ms|s|min|h|d) ago\b|\bnow\b"), "AGO"),
    (re.compile(r"\bafter (?:less than )?\d+ (?:ms|s|min)\b"), "after SPAN"),
    (re.compile(r"[▁-█]{8,} .* last 24 hours"), "DEATHS BY HOUR"),  # an hour may end meanwhile
    (re.compile(r"\bdesk:\d+"), "WORKER"),
    (re.compile(r"[\d,]+ MB"), "SIZE"),
    (re.compile(r"Python [\d.]+, SQLite [\d.]+, \w+"), "VERSIONS"),
    (_ID, "ID"),
    (re.compile(r" +"), " "),
)


def seen(output: str) -> list[str]:
    """What a person is left with: no colours, and no bars that are over."""
    lines = [line.rstrip() for line in _COLOUR.sub("", output).splitlines()]
    return [line for line in lines if "━" not in line]


def ids(lines: list[str]) -> list[str]:
    """Ids that are made anew in every run, in order."""
    return [one for line in lines for one in _ID.findall(line)]


def difference(shown: list[str], said: list[str]) -> str | None:
    """The first line that is not as the page shows it; None when all are."""
    wanted, found = _told(shown), _told(said)
    at, is_loose = 0, False
    for want in wanted:
        if want == ANYTHING:
            is_loose = True
            continue
        while is_loose and at < len(found) and not _same(want, found[at]):
            at += 1
        if at == len(found):
            return f"  shown: {want}\n  said:  nothing more"
        if not _same(want, found[at]):
            return f"  shown: {want}\n  said:  {found[at]}"
        at, is_loose = at + 1, False
    if at < len(found) and not is_loose:
        return f"  shown: nothing more\n  said:  {found[at]}"
    return None


def missing(shown: list[str], said: list[str]) -> str | None:
    """The first line shown that is not said anywhere; the order does not matter."""
    found = _told(said)
    for want in _told(shown):
        if want != ANYTHING and not any(_same(want, line) for line in found):
            return f"  shown: {want}\n  said:  nothing like it"
    return None


def _same(want: str, found: str) -> bool:
    if want == found:
        return True
    if want.endswith(" …"):  # a long line, shown in part
        return found.startswith(want.removesuffix("…"))
    if "…" not in want or "…" not in found:
        return False
    # Cut off a little sooner or later, because a column beside it is wider.
    (start, _, end), (begin, _, rest) = want.partition("…"), found.partition("…")
    return end == rest and (start.startswith(begin) or begin.startswith(start))


def _told(lines: list[str]) -> list[str]:
    told = []
    for line in _unfolded(lines):
        text = line.strip()
        for pattern, instead in _VARIES:
            text = pattern.sub(instead, text)
        if text:
            told.append(text)
    return told


def _unfolded(lines: list[str]) -> list[str]:
    """Where a story is folded depends on the name of the machine it tells."""
    unfolded: list[str] = []
    for line in lines:
        if line.startswith(_DEEP) and unfolded:
            unfolded[-1] += f" {line.strip()}"
        else:
            unfolded.append(line)
    return unfolded
