"""
Odd text in a form that others can store or show, counts, and durations.

Some databases reject NUL, and lone surrogates cannot be encoded; both come from foreign
brokers. `stored` and `shown` keep them exactly, behind a character that no text should have.
`spelled` is for readers: a lone surrogate becomes `\\udc80`, six characters that also find it
in a search.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, overload

import msgspec

MARK: Final = "\ufdd0"
"""The character that marks escaped text."""

_ODD: Final = re.compile(f"[\0\ud800-\udfff{MARK}]")
_ESCAPED: Final = re.compile(f"{MARK}([0-9a-f]{{4}})")
_HALF: Final = re.compile("[\ud800-\udfff]")


@overload
def stored(text: str) -> str: ...
@overload
def stored(text: str | None) -> str | None: ...
def stored(text: str | None) -> str | None:
    """Return a text that can be stored; different texts stay different."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return _ODD.sub(_escape, text)


@overload
def shown(text: str) -> str: ...
@overload
def shown(text: str | None) -> str | None: ...
def shown(text: str | None) -> str | None:
    """Return the original of a stored text."""
    if text is None or text.isascii() or MARK not in text:
        return text
    return _ESCAPED.sub(_meant, text)


def spelled(text: str) -> str:
    """Return the text with every lone surrogate spelled out."""
    return text if text.isascii() else _HALF.sub(_in_letters, text)


def each_text(change: Callable[[str], str], value: Any) -> Any:
    """Return a value of plain types with each text in it changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {each_text(change, key): each_text(change, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [each_text(change, inner) for inner in value]
    return value


def _in_letters(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _escape(found: re.Match[str]) -> str:
    return f"{MARK}{ord(found[0]):04x}"


def _meant(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))


# Foreign text, fit to be stored.
#
# Control characters act on a terminal, lone surrogates cannot be encoded, databases
# reject NUL, and direction marks change how a line reads. They are spelled out.

_UNFIT: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """Return the text with unfit characters spelled out; tabs and newlines stay."""
    return text if text.isprintable() else _UNFIT.sub(_spelled, text)


def plain_line(text: str) -> str:
    """Return the text of `plain` on one line."""
    return plain(text).replace("\n", "\\n")


def is_word(text: str) -> bool:
    """Return whether a text is printable ASCII without spaces."""
    return text.isascii() and text.isprintable() and " " not in text


def cut(text: str, limit: int) -> str:
    """Return the text, or its beginning with an ellipsis if it is longer than `limit`."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


# A search for many words at once.

_Tree: TypeAlias = dict[str, "_Tree"]

_DEEP: Final = 16  # letters of a word that are looked at


def hint_of(words: Iterable[str]) -> re.Pattern[str]:
    """
    Return a pattern that matches every text with one of the words.

    It scans the text once, twice as fast as searching one word after another. Only the
    beginning of long words is compared.
    """
    tree: _Tree = {}
    for word in words:
        branch = tree
        for letter in word[:_DEEP]:
            branch = branch.setdefault(letter, {})
        branch[""] = {}
    return re.compile(_told(tree) if tree else r"(?!)")


def _told(tree: _Tree) -> str:
    if "" in tree:  # a word ends here: it covers longer ones
        return ""
    branches = [re.escape(letter) + _told(rest) for letter, rest in tree.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


# Counts of things, as people write them.


def many(count: int, one: str, more: str | None = None) -> str:
    """Return a count and its noun: `1 letter`, `2,000 letters`."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def span(seconds: float) -> str:
    """Return a length of time in its largest unit, for people."""
    for size, unit in _SPANS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "less than 1 ms"


def attempts_of(count: int) -> str:
    """Return the number of attempts before a death, for people; 0 is unknown."""
    return f"after {many(count, 'attempt')}" if count else "attempts unknown"


# Foreign text, made harmless for a terminal.
#
# Messages, errors and notes may hold sequences that move the cursor, write to the
# clipboard or change the reading direction. They are spelled out.

# C0 and C1 controls; soft hyphen; direction marks, embeddings and isolates; line
# and paragraph separators; other invisible format characters; lone surrogates;
# tag characters.
_HARMFUL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_HARMFUL_IN_LINES: Final = re.compile(_HARMFUL.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def clean(text: str) -> str:
    """Return the text on one line, with everything that a terminal would act on spelled out."""
    return _HARMFUL.sub(_safe_spelled, text)


def clean_lines(text: str) -> str:
    """Return the text of `clean` with its newlines; tabs become spaces."""
    return _HARMFUL_IN_LINES.sub(_safe_spelled, text.replace("\t", "    "))


def clean_json(text: str) -> str:
    """Return an equal JSON document that is harmless on a terminal."""
    return _HARMFUL_IN_LINES.sub(lambda found: _units(found[0]), text)


def _safe_spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    short = {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}.get(code)
    if short is not None:
        return short
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _units(character: str) -> str:
    raw = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[i]:02x}{raw[i + 1]:02x}" for i in range(0, len(raw), 2))


_encoder: Final = msgspec.json.Encoder()


def encode_document(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    r"""
    Return the value as JSON.

    A lone surrogate becomes the six characters of its escape, as in `\udc80`, which
    also find it in a search. Everything else stays exactly what it is.
    """
    try:
        if enc_hook is None:
            return _encoder.encode(value)
        return msgspec.json.encode(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=enc_hook)
        return _encoder.encode(each_text(spelled, plain))


_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the sign for micro
    "μs": 1_000,  # ...and the Greek letter, which Go reads as well
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
_PARTS: Final = re.compile(_PART, re.ASCII)
_WHOLE: Final = re.compile(rf"([-+]?)(0|(?:{_PART})+)", re.ASCII)
_LONGEST: Final = 2**63 - 1  # nanoseconds: what Go can count
_LONGEST_INPUT: Final = 100  # characters


def parse_duration(text: str) -> float:
    """Return the seconds of a duration. Raises ValueError if it is invalid."""
    found = _WHOLE.fullmatch(text) if len(text) <= _LONGEST_INPUT else None
    if found is None:
        raise ValueError(f"not a duration: {text[:_LONGEST_INPUT]!a}; write 30s, 5m or 1h30m")
    nanos = sum(float(n) * _UNITS[unit] for n, unit in _PARTS.findall(found[2]))
    if nanos > _LONGEST:
        raise ValueError(f"duration too long: {text!a}; use at most 2562047h")
    return (-nanos if found[1] == "-" else nanos) / 1e9


def format_duration(seconds: float) -> str:
    """Return the shortest text of a duration, exact to the nanosecond."""
    nanos = round(abs(seconds) * 1e9)
    sign = "-" if seconds < 0 and nanos else ""
    if nanos < _UNITS["s"]:
        return sign + _small(nanos)
    minutes, rest = divmod(nanos, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    said = f"{_decimal(rest, 9)}s"
    if hours or minutes:
        said = f"{minutes}m{said}"
    return f"{sign}{hours}h{said}" if hours else sign + said


def _small(nanos: int) -> str:
    if not nanos:
        return "0s"
    if nanos < _UNITS["us"]:
        return f"{nanos}ns"
    if nanos < _UNITS["ms"]:
        return f"{_decimal(nanos, 3)}µs"
    return f"{_decimal(nanos, 6)}ms"


def _decimal(value: int, places: int) -> str:
    whole, part = divmod(value, 10**places)
    return f"{whole}.{part:0{places}}".rstrip("0").rstrip(".")
