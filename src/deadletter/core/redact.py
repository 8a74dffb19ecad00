"""
Masking of secrets.

Error texts and stacks are redacted when they are captured. Bodies and headers are kept as they
are (P8) and masked when shown. All patterns are linear in the text: repeats are bounded, and no
pattern starts again within what it has read. When in doubt, a value is masked.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import PurePath
from string import ascii_lowercase, ascii_uppercase
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from .errors import ConfigError
from .text import hint_of

MASK: Final = "[redacted]"
BLANK: Final = "\ufdd1"
"""The character that `blank` writes in place of those of a secret; no text should have it."""

_BLANKS: Final = re.compile(f"{BLANK}+")

_HEADERS: Final = r"authorization|cookie"
_NAMES: Final = (  # endings of names of secrets
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|credentials?|jwt"
    r"|(?:api|access|account|auth|encryption|private|secret|signing)[_-]?key"
    r"|session[_-]?(?:id|key)"
)
# Between a name and its value: = : => after a name, also a comma after a quoted name,
# or the end of a tag. Quotes may be escaped, as in JSON within JSON.
_IS: Final = r"""(?:\\{0,3}["']\s{0,3}(?:=>|[=:,])|\s{0,3}(?:=>|:=|[=:])|>)\s{0,3}"""
_OPEN: Final = r"""(?:[bru]{0,2}\\{0,3}["'])?+"""
_VALUE: Final = (  # up to the closing quote, else to a delimiter
    r"""(?!\[redacted\])(?:(?<=[^\\]")(?:[^"\\]|\\.){1,4000}|(?<=[^\\]')(?:[^'\\]|\\.){1,4000}"""
    r"""|(?<=\\["'])[^"'\\]{1,4000}|[^\s"',;&<>()}\]\\]{1,4000})"""
)

_SECRET_NAME: Final = re.compile(rf"(?i){_NAMES}|{_HEADERS}|signature")
_CARD: Final = re.compile(
    r"(?<![\w.-])(?:[2-6]\d{12,18}|[2-6]\d{3}([ -])\d{4}\1\d{4}\1\d{4}"
    r"|3[47]\d\d([ -])\d{6}\2\d{5})(?![\w-])"
)
_DIGITS: Final = re.compile(r"[2-6]\d{3}")  # part of every card number

_Row: TypeAlias = tuple[tuple[str, ...], re.Pattern[str]]
# A pattern runs only if one of its words is in the text; its group `secret` is masked.
# The first ones run over lower case, since ignoring case is ten times slower.
_IN_ANY_CASE: Final[tuple[_Row, ...]] = (
    (
        ("authorization", "cookie"),
        re.compile(rf"(?:{_HEADERS}){_IS}{_OPEN}(?P<secret>[^\r\n\"']{{1,4000}})"),
    ),
    (
        ("pass", "pwd", "secret", "token", "credential", "jwt", "key", "session"),
        re.compile(rf"(?:{_NAMES}){_IS}{_OPEN}(?:(?:bearer|basic)\s{{1,3}})?+(?P<secret>{_VALUE})"),
    ),
    (
        ("--",),
        re.compile(
            rf"(?<![\w-])--(?:[a-z0-9]{{1,20}}+-){{0,3}}(?:{_NAMES})\s{{1,3}}"
            r"""["']?(?P<secret>[^\s"']{1,4000})"""
        ),
    ),
    (
        ("sig=", "signature=", "key="),
        re.compile(r"[?&](?:[\w.-]{0,20}signature|sig|key)=(?P<secret>[^\s&\"'<>]{1,4000})"),
    ),
    (  # a password in a URL that is a parameter of another URL
        ("%3a",),
        re.compile(
            r"%3a(?:%2f|/){2}(?:(?!%3a)[^\s:/@&\"']){0,200}(?:%3a|:)"
            r"(?P<secret>[^\s/&\"']{1,400})(?:%40|@)"
        ),
    ),
)
_AS_WRITTEN: Final[tuple[_Row, ...]] = (
    (
        ("bearer", "basic"),
        re.compile(
            r"\b(?i:bearer|basic)\s{1,3}(?P<secret>[\w.~+/=-]{16,4000}"
            r"|(?=[\w.~+/-]{0,15}(?:[\d=]|[a-z][A-Z]))[\w.~+/=-]{6,15})"
        ),
    ),
    (("://",), re.compile(r"(?<=://)[^\s:/@\"']{0,200}:(?P<secret>[^\s/\"']{1,400})@")),
    (
        ("private key",),
        re.compile(
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
            r"(?P<secret>(?:[^-]|-(?!----END)){1,20000})"
        ),
    ),
    (
        ("eyj",),
        re.compile(
            r"(?<![\w-])(?P<secret>"
            r"eyJ[\w-]{5,4000}+\.[\w-]{5,4000}+\.[\w-]{0,4000}+)"
        ),
    ),
    (
        (
            *("akia", "asia", "aiza", "ghp_", "gho_", "ghs_", "ghu_", "ghr_"),
            *("github_pat_", "glpat-", "xox", "sk-", "k_live_", "k_test_", "npm_"),
            "hvs.",
        ),
        re.compile(
            r"(?<![A-Za-z0-9])(?P<secret>A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35}"
            r"|gh[pousr]_\w{20,255}|github_pat_\w{20,255}|glpat-[\w-]{20,100}"
            r"|xox[abeprs]-[\w-]{10,200}|sk-[\w-]{20,200}|[rs]k_(?:live|test)_\w{10,200}"
            r"|npm_\w{30,100}|hvs\.[\w-]{20,200})(?![A-Za-z0-9])"
        ),
    ),
)
_HINT: Final = hint_of(word for words, _ in (*_IN_ANY_CASE, *_AS_WRITTEN) for word in words)
_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


def redact(text: str) -> str:
    """Return the text with everything that looks like a secret masked."""
    return _without_secrets(text, _as_mask)


def blank(text: str) -> str:
    """Return the text with as many `BLANK` characters in place of each secret."""
    return _without_secrets(text, _as_blanks)


def unblank(text: str) -> str:
    """Return a text of `blank`, or a part of it, with a mask in place of blanks."""
    return _BLANKS.sub(MASK, text)


def _as_mask(secret: str) -> str:
    return MASK


def _as_blanks(secret: str) -> str:
    return BLANK * len(secret)


def _without_secrets(text: str, mask: Callable[[str], str]) -> str:
    # This runs for every error, and most have none of these words.
    lower = _lower(text)
    if _HINT.search(lower):
        text = _redacted(text, lower, mask)
    if not _DIGITS.search(text):
        return text
    return _CARD.sub(lambda found: mask(found[0]) if _is_card(found[0]) else found[0], text)


def redact_bytes(data: bytes) -> bytes:
    """Return bytes, text or not, with everything that looks like a secret masked."""
    # One character per byte, so that unmasked bytes stay as they are.
    return redact(data.decode("latin-1")).encode("latin-1")


def _redacted(text: str, lower: str, mask: Callable[[str], str]) -> str:
    for words, pattern in _IN_ANY_CASE:
        for word in words:
            if word in lower:
                text = _masked(text, pattern.finditer(lower), mask)
                lower = _lower(text)
                break
    for words, pattern in _AS_WRITTEN:
        for word in words:
            if word in lower:
                text = _masked(text, pattern.finditer(text), mask)
                break
    return text


def is_secret_name(name: str) -> bool:
    """Return whether a header or field of this name should be masked when shown."""
    return _SECRET_NAME.search(name) is not None


def _lower(text: str) -> str:
    # Keep the positions: lower() turns some characters into two.
    return text.lower() if text.isascii() else text.translate(_LOWER)


def _masked(text: str, secrets: Iterable[re.Match[str]], mask: Callable[[str], str]) -> str:
    pieces, at = [], 0
    for secret in secrets:
        start, end = secret.span("secret")
        pieces += [text[at:start], mask(text[start:end])]
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


def _is_card(text: str) -> bool:
    digits = [int(digit) for digit in text if digit.isdigit()]
    odd, even = digits[-1::-2], digits[-2::-2]
    total = sum(odd) + sum(sum(divmod(2 * digit, 10)) for digit in even)
    return total % 10 == 0


# URLs of files and servers.


def unreadable(kind: str) -> ConfigError:
    """
    Return the error for a URL that cannot be parsed.

    It does not repeat the URL: an invalid port may be part of a password.
    """
    return ConfigError(
        f"this {kind} URL cannot be read: its port is a number up to 65535, and in a"
        " user or password / ? # @ : [ ] are written %2F %3F %23 %40 %3A %5B %5D"
    )


def sqlite_file(url: str) -> PurePath:
    """Return the file that an SQLite URL names. Raises ConfigError if it names none."""
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if not url.partition(":")[2].startswith("///") or not path:
        raise ConfigError(
            f"{redact(url)!a} names no file: write sqlite:///name.db for a file in this"
            " directory, or sqlite:////full/path.db"
        )
    if parts.fragment:
        raise ConfigError(f"{redact(url)!a} has a #, which ends the path: write it as %23")
    if path == ":memory:":
        raise ConfigError("there is no sqlite engine in memory: use memory://")
    return PurePath(path)
