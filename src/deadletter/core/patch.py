"""
Patches: one change to the JSON bodies of many messages.

A patch is a JSON Merge Patch (RFC 7386): members that it names are set, members that it
gives as null are removed, everything else stays. It works on the text of a body, so that
untouched bytes keep their order and their layout.

It is stricter than the RFC in one point: an object never replaces a string, number or list,
because that would destroy what nobody looked at.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from .errors import ConfigError

LONGEST_PATCH: Final = 64 * 1024  # characters
LARGEST_BODY: Final = 4 * 1024 * 1024  # bytes of a body that is patched
_DEEPEST: Final = 50  # levels of objects in a patch
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_ALONE: Final = re.compile("[\ud800-\udfff]")
_PATH: Final = 200  # characters of a path in an error

Members: TypeAlias = Mapping[str, Any]
"""The members of an object: strings, `Number`, bool, None, lists, and objects again."""


class Number(Struct, frozen=True):
    """A number as it is written, such as `1.10`: reading it as a float would change it."""

    text: str


class NotJson(ValueError):
    """A body is not JSON in UTF-8, too large, or nested too deeply."""


class OtherShape(ValueError):
    """A body has no object where a patch changes something, or has a member twice."""


class Inexpressible(ValueError):
    """An edit cannot be expressed as a patch."""


class Patch(Struct, frozen=True, kw_only=True):
    """
    One change: `members` is the merge patch.

    With `was`, only bodies that have these values are changed. null means there that the
    member is missing or null.
    """

    members: Members
    was: Members | None = None

    @property
    def text(self) -> str:
        """Return the merge patch as JSON."""
        return dump(self.members)

    @property
    def was_text(self) -> str:
        """Return the values that a body must have, as JSON; empty if there are none."""
        return "" if self.was is None else dump(self.was)

    def applied_to(self, body: bytes) -> bytes:
        """
        Return the body with this change; the same body if it is so already.

        Raises `NotJson` or `OtherShape` for bodies that it cannot be applied to.
        """
        text, value = _read(body)
        if not isinstance(value, dict):
            raise OtherShape("the body is not a JSON object")
        patching = _Patching(text)
        try:
            patching.change_object(_after_space(text, 0), self.members)
        except RecursionError:
            raise NotJson("the body is nested too deeply") from None
        return _spliced(text, patching.edits).encode() if patching.edits else body

    def is_for(self, body: bytes) -> bool:
        """Return whether a body has the values that `was` names; raises `NotJson`."""
        return self.was is None or _holds(_read(body)[1], self.was)


def parse_patch(text: str, was: str = "") -> Patch:
    """Return a patch that was written by hand. Raises ConfigError if it is invalid."""
    members = _parse_members(text, "the patch")
    if not members:
        raise ConfigError('the patch is empty: name the members to change, as in {"vat": 19}')
    expected = _parse_members(was, "`was`") if was.strip() else None
    return Patch(members=members, was=expected)


def make_patch(before: bytes, after: bytes) -> Patch:
    """
    Return the patch that one edit of a body stands for, with the values that were there.

    Raises `Inexpressible` if the edit changes more than members of objects: what is in a
    list, a member that becomes null, or a value that becomes an object.
    """
    try:
        (_, old), (_, new) = _read(before), _read(after)
    except NotJson as error:
        raise Inexpressible(f"{error}, before or after the edit") from None
    if not isinstance(old, dict) or not isinstance(new, dict):
        raise Inexpressible("the body is not a JSON object")
    try:
        members, was = _difference(old, new, "")
    except RecursionError:
        raise Inexpressible("the body is nested too deeply") from None
    if _depth(members) > _DEEPEST or len(dump(members)) > LONGEST_PATCH:
        raise Inexpressible("the edit changes too much")
    if not members:
        raise Inexpressible("the edit changes no value of the body")
    return Patch(members=members, was=was)


def dump(value: Any) -> str:
    """Return a value as JSON in one line, its numbers as they were written."""
    match value:
        case Number():
            return value.text
        case str():
            text = json.dumps(value, ensure_ascii=False)
            return _ALONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        case dict():
            members = (f"{dump(name)}: {dump(one)}" for name, one in value.items())
            return "{" + ", ".join(members) + "}"
        case list():
            return "[" + ", ".join(map(dump, value)) + "]"
        case _:
            return json.dumps(value)


# Reading


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER: Final = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=_no_constant
)


def _read(body: bytes) -> tuple[str, Any]:
    """Return a body as text and as a value."""
    if len(body) > LARGEST_BODY:
        raise NotJson(f"the body has more than {LARGEST_BODY:,} bytes")
    try:
        text = body.decode()
        return text, _decode(text)
    except RecursionError:
        raise NotJson("the body is nested too deeply") from None
    except ValueError:
        raise NotJson("the body is not JSON") from None


def _decode(text: str) -> Any:
    value, end = _DECODER.raw_decode(text, _after_space(text, 0))
    if _after_space(text, end) != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value


def _parse_members(text: str, what: str) -> Members:
    if len(text) > LONGEST_PATCH:
        raise ConfigError(f"{what} has {len(text):,} characters; at most {LONGEST_PATCH:,} fit")
    try:
        found = _decode(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{what} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{what} is not JSON: it must be an object of JSON values") from None
    if not isinstance(found, dict):
        raise ConfigError(f'{what} must be a JSON object, as in {{"vat": 19}}')
    if _depth(found) > _DEEPEST:
        raise ConfigError(f"{what} is nested too deeply: at most {_DEEPEST} levels")
    return found


def _depth(value: Any, so_far: int = 0) -> int:
    if not isinstance(value, dict | list) or so_far > _DEEPEST:
        return so_far
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(one, so_far + 1) for one in inner), default=so_far + 1)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # it matches nothing, too
    return found.end()


# Applying


class _Splice(Struct, frozen=True):
    """A piece of a text and what takes its place."""

    start: int
    end: int
    text: str


class _Member(Struct, frozen=True):
    """One member of an object in a text."""

    name: str
    start: int  # of the name
    named: int  # the end of the name
    value_start: int
    end: int
    value: Any


def _spliced(text: str, edits: Sequence[_Splice]) -> str:
    parts, at = [], 0
    for edit in sorted(edits, key=lambda one: (one.start, one.end)):
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


def _members(text: str, at: int) -> Iterator[_Member]:
    """Yield the members of the object that begins at a place of a valid text."""
    place = _after_space(text, at + 1)
    while text[place] != "}":
        name, named = _DECODER.raw_decode(text, place)
        start = _after_space(text, _after_space(text, named) + 1)  # behind the colon
        value, end = _DECODER.raw_decode(text, start)
        yield _Member(name, place, named, start, end, value)
        place = _after_space(text, end)
        if text[place] == ",":
            place = _after_space(text, place + 1)


class _Patching:
    """The edits that patch the objects of one valid text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.edits: list[_Splice] = []

    def change_object(self, at: int, patch: Members, path: str = "") -> None:
        """Add the edits that change the object that begins at a place."""
        members = list(_members(self._text, at))
        style = _Style(self._text, at, members)
        places: dict[str, list[int]] = {}
        for number, one in enumerate(members):
            places.setdefault(one.name, []).append(number)
        removed: set[int] = set()
        added: list[str] = []
        for name, new in patch.items():
            found = places.get(name, [])
            here = f"{path}/{name}"[:_PATH]
            if new is None:
                removed.update(found)
            elif not found:
                added.append(style.member(name, _without_nulls(new)))
            elif len(found) > 1:
                raise OtherShape(f"the body has the member {here} {len(found)} times")
            else:
                self._change_member(members[found[0]], new, style, here)
        self.edits += _removals(members, removed)
        if not added:
            return
        kept = [one for number, one in enumerate(members) if number not in removed]
        if kept:
            new_text = "".join(f",{style.between}{one}" for one in added)
            self.edits.append(_Splice(kept[-1].end, kept[-1].end, new_text))
        else:
            place = members[0].start if members else at + 1
            self.edits.append(_Splice(place, place, f",{style.between}".join(added)))

    def _change_member(self, member: _Member, new: Any, style: "_Style", path: str) -> None:
        if isinstance(new, dict) and isinstance(member.value, dict):
            self.change_object(member.value_start, new, path)
            return
        if isinstance(new, dict) and member.value is not None:
            raise OtherShape(f"{path} is not an object in the body")
        value = _without_nulls(new)
        if member.value != value:
            self.edits.append(_Splice(member.value_start, member.end, style.value(value)))


def _removals(members: Sequence[_Member], removed: set[int]) -> Iterator[_Splice]:
    """Yield the edits that remove members, each with one of its commas."""
    is_first = True
    for number, member in enumerate(members):
        if number not in removed:
            is_first = False
        elif not is_first:
            yield _Splice(members[number - 1].end, member.end, "")
        elif number + 1 < len(members):
            yield _Splice(member.start, members[number + 1].start, "")
        else:
            yield _Splice(member.start, member.end, "")


class _Style:
    """The layout of an object, which new members follow."""

    def __init__(self, text: str, at: int, members: Sequence[_Member]) -> None:
        self.between, self._colon = " ", ": "
        if not members:
            return
        first = members[0]
        self._colon = text[first.named : first.value_start]
        if len(members) > 1:
            self.between = text[_comma(text, first) + 1 : members[1].start]
        else:
            gap = text[at + 1 : first.start]
            self.between = gap if "\n" in gap else self._colon.partition(":")[2]

    def member(self, name: str, value: Any) -> str:
        return f"{dump(name)}{self._colon}{self.value(value)}"

    def value(self, value: Any) -> str:
        """Return a value in one line, without spaces where the object has none."""
        text = dump(value)
        if self._colon != ":" or not isinstance(value, dict | list):
            return text
        return _compact(value)


def _comma(text: str, member: _Member) -> int:
    return _after_space(text, member.end)


def _compact(value: Any) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{dump(k)}:{_compact(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_compact, value)) + "]"
        case _:
            return dump(value)


def _without_nulls(value: Any) -> Any:
    """Return what a patch makes of a member that is not there yet."""
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(one) for name, one in value.items() if one is not None}


def _holds(value: Any, was: Any) -> bool:
    """Return whether a value has what is expected of it."""
    if not isinstance(was, dict):
        return bool(value == was)
    if value is None:
        return all(_holds(None, one) for one in was.values())
    return isinstance(value, dict) and all(
        _holds(value.get(name), one) for name, one in was.items()
    )


# Making


def _difference(old: Members, new: Members, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the patch between two objects, and the values that were there."""
    patch: dict[str, Any] = {}
    was: dict[str, Any] = {}
    for name in [*old, *(one for one in new if one not in old)]:
        here = f"{path}/{name}"[:_PATH]
        if name not in new:
            patch[name], was[name] = None, old[name]
            continue
        before, after = old.get(name), new[name]
        if name in old and before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            patch[name], was[name] = _difference(before, after, here)
            continue
        if isinstance(before, list) and isinstance(after, list):
            raise Inexpressible(f"the edit changes what is in the list {here}")
        if isinstance(after, dict) and before is not None:
            raise Inexpressible(f"the edit makes an object of the value {here}")
        if _has_null(after):
            raise Inexpressible(f"the edit sets {here} to null, which a patch uses to remove it")
        patch[name], was[name] = after, before
    return patch, was


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return value is None
