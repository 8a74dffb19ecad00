"""
Drafts: a message as a form shows it, and the changes that were typed into it.

What a form cannot show exactly is never changed by it: a field that comes back as it was shown
keeps its bytes. Browsers change line breaks, and pages spell out odd characters.
"""

import json
import re
from base64 import b64decode, encodebytes
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from deadletter.core.errors import ConfigError
from deadletter.core.letter import Changes
from deadletter.core.message import RESERVED, Headers, Message
from deadletter.core.text import clean, clean_json
from deadletter.office.diff import lay_out
from deadletter.server.console.bounds import weight

JSON: Final = "json"
TEXT: Final = "text"
BASE64: Final = "base64"
KEEP: Final = "keep"
FORMS: Final = (JSON, TEXT, BASE64, KEEP)
"""The forms in which a body can be edited."""
MOST_HEADERS: Final = 60
_LARGEST: Final = 100_000  # bytes of HTML of a body that can be edited on a page
_OF_HEADERS: Final = 60_000  # ...and of all headers
_BLANKS: Final = 2  # rows for new headers

Header: TypeAlias = tuple[str, bytes]
_Many: TypeAlias = Annotated[tuple[str, ...], Meta(max_length=MOST_HEADERS + 20)]


class DraftForm(Struct, frozen=True, kw_only=True):
    """The fields of the form."""

    revision: int
    body: str = ""
    encoding: str = KEEP
    content_type: str = ""
    key: str = ""
    header_was: _Many = ()
    header_name: _Many = ()
    header_value: _Many = ()
    header_form: _Many = ()
    reason: Annotated[str, Meta(max_length=4_000)] = ""
    base: str = ""
    seen: str = ""
    step: str = "check"


class HeaderField(Struct, frozen=True, kw_only=True):
    """One header in a form; `was` is its number in the message, -1 for a new one."""

    was: int = -1
    name: str = ""
    value: str = ""
    form: str = TEXT


class Draft(Struct, frozen=True, kw_only=True):
    """A message as a form shows it."""

    body: str
    form: str
    content_type: str
    key: str
    headers: tuple[HeaderField, ...]
    left_out: int = 0  # headers that are too many, too long or too odd for a form

    @property
    def base(self) -> str:
        """Return digests of the fields, to know later which ones were touched."""
        parts = ((self.form, self.body), self.content_type, self.key, _compact(self.headers))
        return ".".join(_digest(part) for part in parts)


class Problems(Exception):
    """Sentences about fields that are invalid, by field."""

    def __init__(self, told: dict[str, str]) -> None:
        super().__init__(*told.values())
        self.told = told


def draft_of(message: Message) -> Draft:
    """Return a message as a form shows it."""
    form, body = _shown_body(message)
    headers, left_out = _shown_headers(message.headers)
    return Draft(
        body=body,
        form=form,
        content_type=clean(message.content_type or ""),
        key=clean(message.key or ""),
        headers=headers,
        left_out=left_out,
    )


def typed_draft(form: DraftForm, message: Message) -> Draft:
    """Return what was typed, as a form shows it again."""
    rows = zip(form.header_was, form.header_name, form.header_value, form.header_form, strict=False)
    headers = [_again(*row) for row in rows]
    kind, body = _shown_again(form.encoding, _newlines(form.body))
    return Draft(
        body=body,
        form=kind,
        content_type=form.content_type,
        key=form.key,
        headers=tuple(row for row in headers if row.name or row.value),
        left_out=draft_of(message).left_out,
    )


def on_top(typed: Draft, base: str, now: Draft) -> Draft:
    """Return what was typed on top of another edit: untouched fields are as they are now."""
    before = base.split(".")
    touched = [old != new for old, new in zip(before, typed.base.split("."), strict=False)]
    if len(touched) != 4:
        touched = [True] * 4
    body, content_type, key, headers = touched
    return Draft(
        body=typed.body if body else now.body,
        form=typed.form if body else now.form,
        content_type=typed.content_type if content_type else now.content_type,
        key=typed.key if key else now.key,
        headers=_renumbered(typed.headers, now.headers) if headers else now.headers,
        left_out=now.left_out,
    )


def with_blanks(draft: Draft) -> Draft:
    """Return a draft with empty rows for new headers."""
    return structs.replace(draft, headers=(*draft.headers, *(HeaderField(),) * _BLANKS))


def laid_out(draft: Draft) -> Draft:
    """Return a draft with its JSON laid out; the same draft if that cannot be done."""
    text = lay_out(draft.body.encode("utf-8", "surrogatepass")) if draft.form == JSON else None
    if text is None or not is_plain(text) or weight_of(text) > _LARGEST:
        return draft
    return structs.replace(draft, body=text)


def changes_of(typed: Draft, message: Message) -> Changes:
    """Return the changes that were typed. Raises `Problems` if a field is invalid."""
    shown = draft_of(message)
    told: dict[str, str] = {}
    body: bytes | UnsetType = UNSET
    headers: Headers | UnsetType = UNSET
    try:
        body = _body(typed, shown, message)
    except ValueError as error:
        told["body"] = str(error)
    try:
        headers = _headers(typed, shown, message)
    except ValueError as error:
        told["headers"] = str(error)
    for name in ("content_type", "key"):
        text = getattr(typed, name)
        if text != getattr(shown, name) and clean(text) != text:
            told[name] = "It has characters that a page cannot show: type others."
    changes = Changes(
        body=body,
        headers=headers,
        content_type=_named(typed.content_type, shown.content_type),
        key=_named(typed.key, shown.key),
    )
    try:
        changes.made_to(message)
    except ConfigError as error:
        told.setdefault("other", str(error))
    if told:
        raise Problems(told)
    return changes


def digest_of(changes: Changes, revision: int) -> str:
    """Return a digest of changes, which says that somebody has seen exactly these."""
    return _digest([revision, msgspec.to_builtins(changes, builtin_types=(bytes,))])


def is_nothing(changes: Changes) -> bool:
    """Return whether nothing is changed."""
    return changes == Changes()


# Bodies


def _shown_body(message: Message) -> tuple[str, str]:
    body = message.body
    if len(body) > _LARGEST:
        return KEEP, ""
    text = _as_lines(body)
    if text is None or "\r" in text:
        shown = BASE64, _as_base64(body)
    else:
        is_json = _json_problem(text) == "" and text.lstrip()[:1] in {"{", "["}
        is_json |= "json" in (message.content_type or "") and _json_problem(text) == ""
        shown = _shown_again(JSON if is_json else TEXT, text)
    return shown if weight_of(shown[1]) <= _LARGEST else (KEEP, "")


def weight_of(text: str) -> int:
    """Return the bytes that a text takes in a field with several lines."""
    return weight(text.replace("\n", "").replace("\t", ""))


def _as_lines(body: bytes) -> str | None:
    """Return a body as text with plain line breaks; None if that would lose something."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    if "\r\n" not in text:
        return text
    lines = text.replace("\r\n", "\n")
    return lines if lines.count("\n") == text.count("\r\n") else None


def _shown_again(form: str, text: str) -> tuple[str, str]:
    """Return a text in a form that a page can show exactly."""
    if form not in FORMS:
        return KEEP, ""
    if form in {BASE64, KEEP} or is_plain(text):
        return form, text if form != BASE64 else "".join(_plain_part(text))
    if form == JSON:
        escaped = clean_json(text.replace("\t", "\0")).replace("\\u0000", "\t")
        if is_plain(escaped) and "\0" not in text and _json_problem(escaped) == "":
            return JSON, escaped
    return BASE64, _as_base64(text.encode("utf-8", "surrogatepass"))


def _plain_part(text: str) -> Sequence[str]:
    return [one for one in text if one == "\n" or clean(one) == one]


def is_plain(text: str) -> bool:
    """Return whether a page can show a text exactly: its lines, tabs and characters."""
    line = text.replace("\n", "").replace("\t", "")
    return clean(line) == line


def _as_base64(body: bytes) -> str:
    return encodebytes(body).decode()


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _json_problem(text: str) -> str:
    """Return why a text is not JSON; empty if it is."""
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        return f"This is not JSON: line {error.lineno}, column {error.colno}: {error.msg}."
    except RecursionError:
        return "This is nested too deeply to check."
    return ""


def _body(typed: Draft, shown: Draft, message: Message) -> bytes | UnsetType:
    if typed.form == KEEP or (typed.form, typed.body) == (shown.form, shown.body):
        return UNSET
    if typed.form == BASE64:
        try:
            body = b64decode("".join(typed.body.split()), validate=True)
        except ValueError:
            raise ValueError("This is not base64: choose another form, or correct it.") from None
    else:
        problem = _json_problem(typed.body) if typed.form == JSON else ""
        if problem:
            raise ValueError(f"{problem} Correct it, or save it as text.")
        text = _unescaped(typed.body, message.body) if typed.form == JSON else typed.body
        if b"\r\n" in message.body and _as_lines(message.body) is not None:
            text = text.replace("\n", "\r\n")
        body = text.encode("utf-8", "surrogatepass")
    return UNSET if body == message.body else body


_ESCAPES: Final = re.compile(r"(?<!\\)((?:\\\\)*)((?:\\u[0-9a-f]{4})+)")


def _unescaped(text: str, before: bytes) -> str:
    """Return JSON with those characters as they were that only the form has escaped."""
    old = _as_lines(before) or ""
    if is_plain(old):
        return text
    escapes = {clean_json(one): one for one in set(old) if not is_plain(one)}
    ours = {escape: one for escape, one in escapes.items() if escape not in old}

    def restored(found: re.Match[str]) -> str:
        run = found[2]
        for escape, one in ours.items():
            run = run.replace(escape, one)
        return found[1] + run

    return _ESCAPES.sub(restored, text)


def _named(typed: str, shown: str) -> str | UnsetType | None:
    if typed == shown:
        return UNSET
    return typed or None


# Headers


def _shown_headers(headers: Headers) -> tuple[tuple[HeaderField, ...], int]:
    fields: list[HeaderField] = []
    room, left_out = _OF_HEADERS, 0
    for was, (name, value) in enumerate(headers):
        if _is_hidden(name):
            continue
        form, text = _shown_value(value)
        room -= weight(clean(name)) + weight(text) + 400
        if not name or len(fields) >= MOST_HEADERS or room < 0:
            left_out += 1
            continue
        fields.append(HeaderField(was=was, name=clean(name), value=text, form=form))
    return tuple(fields), left_out


def _is_hidden(name: str) -> bool:
    return name[: len(RESERVED)].lower() == RESERVED


def _shown_value(value: bytes) -> tuple[str, str]:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return BASE64, _in_one_line(value)
    if clean(text) != text or text != text.strip():
        return BASE64, _in_one_line(value)
    return TEXT, text


def _in_one_line(value: bytes) -> str:
    return _as_base64(value).replace("\n", "")


def _again(was: str, name: str, value: str, form: str) -> HeaderField:
    number = int(was) if was.isdecimal() and len(was) < 9 else -1
    if form != BASE64 and clean(value) != value:
        form, value = BASE64, _in_one_line(value.encode("utf-8", "surrogatepass"))
    return HeaderField(was=number, name=name, value=value, form=BASE64 if form == BASE64 else TEXT)


def _renumbered(
    typed: Sequence[HeaderField], now: Sequence[HeaderField]
) -> tuple[HeaderField, ...]:
    """Return typed headers with the numbers of those that are the same now."""
    left = list(now)
    found = []
    for field in typed:
        same = next(
            (one for one in left if (one.name, one.value) == (field.name, field.value)), None
        )
        if same is not None:
            left.remove(same)
        found.append(structs.replace(field, was=-1 if same is None else same.was))
    return tuple(found)


def _compact(headers: Sequence[HeaderField]) -> list[list[str]]:
    return [[one.name, one.value, one.form] for one in headers if one.name or one.value]


def _headers(typed: Draft, shown: Draft, message: Message) -> Headers | UnsetType:
    before = {field.was: field for field in shown.headers}
    placed: dict[int, Header] = {}
    added: list[Header] = []
    for field in typed.headers:
        if not field.name:
            if field.value:
                raise ValueError(f"The header with the value {field.value[:40]!r} has no name.")
            continue
        old = before.get(field.was)
        header = _header(field, old, message)
        if old is not None and field.was not in placed:
            placed[field.was] = header
        else:
            added.append(header)
    # Headers that the form does not show keep their places.
    result = [
        placed.get(number, header)
        for number, header in enumerate(message.headers)
        if number in placed or number not in before
    ]
    headers = (*result, *added)
    return UNSET if headers == message.headers else headers


def _header(field: HeaderField, old: HeaderField | None, message: Message) -> Header:
    name, value = field.name, b""
    is_named = old is not None and field.name == old.name
    if is_named:
        name = message.headers[field.was][0]
    elif clean(name) != name:
        raise ValueError(f"The name {clean(name)[:40]!r} has characters that cannot be shown.")
    elif _is_hidden(name):
        raise ValueError(f"Names that begin with {RESERVED} are reserved: use another one.")
    if old is not None and (field.value, field.form) == (old.value, old.form):
        return name, message.headers[field.was][1]
    if field.form == BASE64:
        try:
            value = b64decode(field.value, validate=True)
        except ValueError:
            raise ValueError(f"The value of {name[:40]!r} is not base64.") from None
    else:
        value = field.value.encode("utf-8", "surrogatepass")
    return name, value


def _digest(value: object) -> str:
    return blake2b(
        json.dumps(value, default=_as_hex).encode("utf-8", "surrogatepass"), digest_size=8
    ).hexdigest()


def _as_hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
