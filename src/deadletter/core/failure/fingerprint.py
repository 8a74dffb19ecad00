"""
Fingerprints: letters with the same cause share one.

A fingerprint covers the mailbox, the error's type, trouble and code, the top application frame
with a hash of its line, and the text without data that varies from message to message. Frames
of this package never count. Its version allows changes of that: letters with an older version
get a new fingerprint when they are kept, and the chore `regroup` does the same for those in the
office.
"""

import re
from functools import lru_cache
from hashlib import blake2b
from http import HTTPStatus
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from deadletter.core.failure import Failure, Trouble
from deadletter.core.letter import DeadLetter, LetterHead

# Tables of names and numbers that belong to the cause of an error.
#
# Everything else that looks like data is removed from the text.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMED_TYPES: Final = _words(
    """
    AttributeError ImportError KeyError ModuleNotFoundError NameError TypeError
    UnboundLocalError KeyNotFoundException ClassCastException
    ClassNotFoundException NoClassDefFoundError NoMethodError NoSuchFieldError
    NoSuchFieldException NoSuchMethodError NoSuchMethodException
    NullPointerException ReferenceError
    """
)
"""Errors whose quoted names are the cause, by type name without its module."""

NAMING_WORDS: Final = _words(
    """
    action arg argument arguments attr attribute because block bucket call cast
    class codec collection column command constant constraint cookie currency
    database decoder directive element encoding entity enum env exchange exec
    extension field fields filter flag for_key format function global handler
    header import index instance interface invocation invoke key keyword label
    language library local locale macro member method mimetype module name near
    namespace object operator option package param parameter permission plugin
    policy procedure property provider queue reading reference region relation
    resource_type role route schema scope script sequence service setting slot
    state status stream symbol table tag template topic trigger type types unit
    unknown value_for variable variant vhost view
    """
)
"""Words before a quoted name that is part of the cause: column "amout"."""

NAMING_PHRASES: Final = (
    *("has no attribute", "object has no", "object is not", "object cannot", "object"),
    *("is not defined", "is not a function", "is not a valid", "is not a constructor"),
    *("is a required", "is required", "is null", "is undefined", "codec can"),
    *("was not present in", "not supported between", "has no property", "is missing"),
    *("field is required", "is an invalid keyword", "is abstract", "was never awaited"),
)
"""Words after a quoted name that is part of the cause: 'x' is not defined."""

SPEAKING_WORDS: Final = _words(
    """
    code desc description detail details err errmsg error errors exception fault
    message msg reason status str title type
    """
)
"""Names of quoted sentences that describe the error: details = "not found"."""

TYPES_WITH_DIGITS: Final = _words(
    """
    base32 base58 base64 crc32 ec2 float16 float32 float64 h2 http2 http3 i16 i32
    i64 i8 int128 int16 int32 int64 int8 ipv4 ipv6 k8s latin1 md5 oauth2 p12 s3
    sha1 sha256 sha384 sha512 u16 u32 u64 u8 uint16 uint32 uint64 uint8 utf16
    utf32 utf8 utf8mb4 x509
    """
)
"""Words with digits that are not ids; numbers of bits distinguish types."""

SERVICE_PORTS: Final = _words(
    """
    21 22 25 53 80 110 143 389 443 465 587 636 993 995 1433 1521 2181 2379 3306
    3389 4222 5432 5671 5672 6379 6432 8080 8443 8529 9000 9042 9092 9093 9200
    11211 15672 26257 27017 50051
    """
)
"""Ports that name a service; any other port is data."""

COMMON_PAIRS: Final = _words(
    """
    in er re te es at ed ti on en le st ng co ar de nt al se or li et ra an me ri
    it ta ne is ec di tr io ge ro ma nd un ns la pe ca si ic na ve ea ac pa lo ct
    rs as ce el fi pr am il th to nc ts he ll ch ex om ss od ly ni ou ad mp im po
    ur em ol su rt op mi ab bl ck pl no ha mo ul ap oc ie ke ut ia us da os sh id
    cl ho ef ai ig sp ot fo ep sc ir va rm ee iv pt cr so iz do ow tt ff ag um pi
    ze if tu ty ls ub hi lt ev oo wa ds rc rd ba qu fr ip ci be rr vi sa nf bi up
    fe pp ib eg tl cu du tc gr ue wi ay gi ry
    """
)
"""Pairs of letters: five in six of those in words, one in four of those in ids."""

UNITS: Final = (  # no letter may follow
    r"ns|us|µs|ms|s|m|h|d|secs?|seconds?|millis|milliseconds?|mins?|minutes?|hours?|days?"
    r"|[kKMGTP]i?[Bb]|[Bb]ytes?|[kKMGTP]B/s|%"
)
"""Units that are removed together with the number before them: 30 seconds, 1.49 GiB."""

STATUS_PHRASES: Final = {
    str(int(one)): (one.phrase, one.name, "Client Error", "Server Error")
    for one in HTTPStatus
    if int(one) >= 300
}
"""HTTP status codes with the words after them: 404 Not Found."""

CODE_WORDS: Final = {
    **dict.fromkeys(("http", "occurred"), 3),
    **dict.fromkeys(("status", "signal", "exit", "rc", "returncode"), 3),
    **dict.fromkeys(("code", "errno", "winerror", "val", "sqlstate", "ora"), 6),
    **dict.fromkeys(("error", "err"), 5),
}
"""Words before a number that is a code, and the most digits of that code."""

CODE_NAMES: Final = _words(
    """
    errcode errorcode exitcode faultcode reasoncode responsecode resultcode
    statuscode
    """
)
"""Names of error codes in one word, as JSON has them: errorCode=E1001."""

ANSWER_WORDS: Final = frozenset(("returned", "answered", "with", "got", "received", "a"))
"""Words before a status code of 400 or more: the bank answered 503."""


# Normalisation of error texts.
#
# Ids, numbers, times, addresses and data all become the same mark, `<*>`, because an id
# may have another shape in the next message. Status codes, error codes and the quoted
# names of the tables above stay.

MARK: Final = "<*>"

_READ: Final = 600  # characters of a text that are read
_SHORTEST_ID: Final = 12  # of those without a digit
_KEPT: Final = 300  # characters of the result: the length of ids must not matter

# Repeats are bounded or possessive: a text of any length and content costs < 3 ms.
# Each pattern begins with characters, not with a look behind, to be searched quickly.
_DATA_FROM: Final = re.compile(r"\[parameters: |, full error: |\[SQL: |\(Background on ")
_ROW: Final = re.compile(r"row contains \([^\n]{0,600}")
_KEY_VALUE: Final = re.compile(r"\)=\([^\n]{0,300}?\)(?= |\Z)")
_QUOTED: Final = re.compile(
    r"""
      "(?<!\w")[^"\n]{0,600}"(?!\w) | "(?<=\bb")[^"\n]{0,600}"(?!\w)
    | '(?<!\w')[^'\n]{0,600}'(?!\w) | '(?<=\bb')[^'\n]{0,600}'(?!\w)
    | `(?<!\w`)[^`'\n]{0,200}[`'](?!\w)
    | “[^”\n]{0,300}”
    """,
    re.VERBOSE,
)
_URL: Final = re.compile(r"(?<![\w+.-])[A-Za-z][\w+.-]{1,15}+://[^\s\"'<>()]{1,400}+")
_EMAIL: Final = re.compile(r"<?(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}+(?:\.[\w-]{1,63}+)++>?")
_BASE64: Final = re.compile(r"(?<![\w+/])(?!/[\w.-]{1,100}/)[A-Za-z0-9+/]{10,600}+={1,2}(?![\w=])")
_PATH: Final = re.compile(r"(?<![\w.<>])(?:[A-Za-z]:)?(?:[\\/][\w.@+~%:=?&,<>*-]{1,100}+){2,}+")
_UUID: Final = re.compile(
    r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?![0-9A-Fa-f])"
)
_LONG: Final = re.compile(r"[\w+-]{12,}+={0,2}(?:\.[A-Za-z0-9_-]{8,}+){0,4}")
_PREFIXED: Final = re.compile(
    r"[a-z]{2,5}_(?=[a-zA-Z]*\d|[a-z]+[A-Z]|[A-Z]+[a-z])[A-Za-z0-9]{12,}+\Z"
)
_DIGIT: Final = re.compile(r"\d")
_NUMBER: Final = re.compile(
    r"[^\W\d]*+\d\w*+(?:[-:.,]++\w++)*+"
    rf"(?:[.,]?[ ]?(?:{UNITS})(?!\w))?"
)
_DAY: Final = re.compile(
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? )?<\*> "
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6} <\*>(?: GMT| UTC)?"
)
_BEFORE: Final = re.compile(r"([A-Za-z_]++)(?:\(s\))?([^A-Za-z_\n]{0,6})\Z")
_HOST: Final = re.compile(r"(?<![\w.-])[A-Za-z][\w.-]{0,62}:\Z")
_CONNECTING: Final = re.compile(r"(?i)connect|refused|reach|resolv|unavailable|broker")
_NAME: Final = re.compile(r"[$\w<>.:*\[\]() %-]{1,80}\Z")
_HEX: Final = re.compile(r"(?i)(?:0x[0-9a-f]++|(?=[a-f]*\d)[0-9a-f]{6,}+)\Z")
_SEGMENT: Final = re.compile(r"[^\W_]++")
_GIVEN: Final = re.compile(r"[^\W\d]++(?:\d{1,2}|(?:19|20)\d\d)(?:_[^\W\d]*+)?\Z")
_NUMBERED: Final = re.compile(r"([^\W\d_]{2,}+)\d{1,9}\Z")
_ERROR_NAME: Final = re.compile(r"(?:E\d{5}|P\d{4}|AADSTS\d{4,8}|HY\d{3})\Z")
_LETTERS: Final = re.compile(r"(?<![^\W_])[A-Za-z]{4,}(?![^\W_])")
_IPV6: Final = re.compile(r"(?i)(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{0,4}")
_PAIRED: Final = (", '", ', "', ", b")
_TAIL: Final = re.compile(  # dashes around ids, and the random end of a pod's name
    r"(?<![\w>-])[-_+]++<\*>|<\*>(?:-[bcdfghjklmnpqrstvwxz2456789]{5}\b|[-_+=]++(?!\w))"
)
_RUN: Final = re.compile(r"<\*>(?:(?:[-_:.,;/+= x*]|\band\b){0,3}<\*>)++")
_NEST: Final = re.compile(r"[\[({](?:<\*>|True|False|None|null|true|false|NaN|[\s,:=])*+[\])}]")


def normalise(text: str, error_type: str = "") -> str:
    """Return a text without varying data; the type decides about quoted names."""
    return _remembered(text[:_READ], error_type.rpartition(".")[2] in NAMED_TYPES)


@lru_cache(maxsize=1024)  # an outage repeats the same text
def _remembered(text: str, named: bool) -> str:
    text = _normalised(text, named)
    if "  " in text or not text.isprintable():
        text = " ".join(text.split())
    return text.strip()[:_KEPT]


def _normalised(text: str, named: bool) -> str:
    text = _without_data(text)
    if '"' in text or "'" in text or "`" in text or "“" in text:
        text = _QUOTED.sub(lambda found: _unquoted(found, named), text)
    text = _bare(text)
    marks = text.count(MARK)
    if marks:
        if "-" in text or "_" in text or "+" in text or "=" in text:
            text = _TAIL.sub(MARK, text)
        if marks > 1:
            text = _DAY.sub(MARK, _RUN.sub(MARK, text))
        if "(" in text or "[" in text or "{" in text:
            text = _nested(text)
    return text


def _bare(text: str) -> str:
    """Normalise a text without quotes: addresses first, then ids, then numbers."""
    if "://" in text:
        text = _URL.sub(_url, text)
    if "@" in text:
        text = _EMAIL.sub(MARK, text)
    if "=" in text:
        text = _BASE64.sub(MARK, text)
    if "/" in text or "\\" in text:
        text = _PATH.sub(lambda found: _path(found[0]), text)
    if text.count("-") >= 4:
        text = _UUID.sub(MARK, text)
    if max(map(len, text.split(" "))) >= _SHORTEST_ID:
        text = _LONG.sub(_long, text)
    return _numbers(text)


def _without_data(text: str) -> str:
    if ": " in text or "(Back" in text:
        found = _DATA_FROM.search(text)
        text = text if found is None else text[: found.start()]
    if "DETAIL" in text:
        text = _KEY_VALUE.sub(")=<*>", _ROW.sub("row contains <*>", text))
    if text.startswith(("MOVED ", "ASK ")):  # Redis names another address each time
        text = text.partition(" ")[0]
    return text


def _nested(text: str) -> str:
    for _ in range(3):  # brackets in brackets in brackets
        shorter = _RUN.sub(MARK, _NEST.sub(MARK, text))
        if shorter == text:
            break
        text = shorter
    return text


def _unquoted(match: re.Match[str], named: bool) -> str:
    text, start, inner = match.string, match.start(), match[0][1:-1]
    before = _BEFORE.search(text, max(0, start - 24), start)
    word = before[1] if before else ""
    if word == "b":  # bytes
        before = _BEFORE.search(text, max(0, start - 24), start - 1)
        word = before[1] if before else ""
    last = word.rpartition("_")[2].lower()
    end = match.end()
    if last in SPEAKING_WORDS or text[start - 1 : start] == "(" or _follows_code(match):
        return f"'{_normalised(inner, named)}'"
    if inner in SPEAKING_WORDS and text[end : end + 1] == ":":
        return f"'{inner}'"
    if "://" in inner or inner[:1] in ("/", "\\", "."):
        return f"'{_bare(inner)}'"
    if (
        named
        or match[0][0] == "`"
        or last in NAMING_WORDS
        or word in NAMED_TYPES
        or " enum " in text[max(0, start - 30) : start]
        or text[end : end + 30].lstrip().startswith(NAMING_PHRASES)
    ) and _NAME.match(inner):
        return f"'{_name(inner)}'"
    if inner[4:].startswith(STATUS_PHRASES.get(inner[:3], ("\n",))):
        return f"'{inner}'"
    return MARK


def _follows_code(match: re.Match[str]) -> bool:
    """Return whether it is the text of (1213, 'Deadlock found')."""
    code, _, rest = match.string[max(0, match.start() - 8) : match.start()].rpartition(", ")
    return rest in ("", "b") and code.rpartition("(")[2].isdigit()


def _name(inner: str) -> str:
    """Normalise a quoted name: digits at its end may belong to it, an id does not."""
    if all(map(_is_given, inner.split("."))):
        return inner
    shorter = _bare(inner)
    return MARK if MARK in shorter else shorter


def _is_given(name: str) -> bool:
    """Return whether a person chose this name: address2, orders_2024, but not ord_4711."""
    if name.replace("_", "").isalpha():
        return not _is_random(name)
    return _GIVEN.match(name) is not None and not _HEX.match(name)


def _long(match: re.Match[str]) -> str:
    """Normalise a long run of letters and digits: an id, unless it contains words."""
    found = match[0]
    if not any(map(str.isdigit, found)):
        is_id = found[-1] == "=" or _is_random(found) or _PREFIXED.match(found)
        return MARK if is_id else found
    if len(found) < 16:
        return MARK if _PREFIXED.match(found) else found
    words = [word for word in _LETTERS.findall(found) if not _is_random(word, 4)]
    return found if sum(map(len, words)) * 2 >= len(found) else MARK


def _numbers(text: str) -> str:
    # By hand: a pattern that may begin with letters is tried at each of them.
    pieces: list[str] = []
    done = 0
    digit = _DIGIT.search(text)
    while digit is not None:
        start = digit.start()
        while start > done and (text[start - 1].isalnum() or text[start - 1] == "_"):
            start -= 1
        found = _NUMBER.match(text, start)
        if found is None:  # numerals of other scripts
            pieces.append(text[done : digit.end()])
            done = digit.end()
        else:
            pieces += (text[done:start], _number(found))
            done = found.end()
        digit = _DIGIT.search(text, done)
    if not pieces:
        return text
    pieces.append(text[done:])
    return "".join(pieces)


def _number(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) <= 6 and found.isalnum() and _is_code(match, found):
        return found
    return MARK if found.isdigit() else _word(found)


def _is_code(match: re.Match[str], found: str) -> bool:
    """Return whether a number is a status, an error code or the port of a service."""
    text, (start, end) = match.string, match.span()
    if found in STATUS_PHRASES and (
        text.startswith(STATUS_PHRASES[found], end + 1)
        or (start == 0 and text[end : end + 1] in (",", ":", " "))
    ):
        return True
    if text[start - 1 : start] == "(" and text[end : end + 3] in _PAIRED:
        return True
    if found in SERVICE_PORTS and text[max(0, start - 3) : start] in ("', ", "ort", ">, "):
        return True
    if found in SERVICE_PORTS and _is_port(text, start):
        return True
    before = _BEFORE.search(text, max(0, start - 16), start)
    if before is None:
        return False
    word, joint = before[1].rpartition("_")[2].lower(), before[2]
    word = "code" if word in CODE_NAMES else word
    if len(found) <= CODE_WORDS.get(word, 0):
        # "Error 111 connecting", but not "error: 4711 is unknown".
        return word not in ("error", "err") or ":" not in joint
    if word in ANSWER_WORDS:
        return found in STATUS_PHRASES and found[0] in "45"
    return word == "port" and found in SERVICE_PORTS


def _is_port(text: str, start: int) -> bool:
    """Return whether a host precedes it: db:5432, but not order:9000."""
    host = _HOST.search(text, max(0, start - 64), start)
    return host is not None and ("." in host[0] or _CONNECTING.search(text) is not None)


def _word(found: str) -> str:
    if found.lower() in TYPES_WITH_DIGITS or _ERROR_NAME.match(found):
        return found
    if found.count(":") > 2:
        found = _IPV6.sub(MARK, found)
    host, _, port = found.rpartition(":")
    if port in SERVICE_PORTS and host:
        return f"{_SEGMENT.sub(_segment, host)}:{port}"
    if " " in found:  # a unit
        return MARK
    return _SEGMENT.sub(_segment, found)


def _segment(match: re.Match[str]) -> str:
    part = match[0]
    if part.isdigit():
        return MARK
    if part.isalpha() or part.lower() in TYPES_WITH_DIGITS:
        return part
    numbered = None if _HEX.match(part) else _NUMBERED.match(part)
    if numbered is None or _is_random(numbered[1]):
        return MARK
    return f"{numbered[1]}{MARK}"


@lru_cache(maxsize=4096)
def _is_random(word: str, shortest: int = 10) -> bool:
    """Return whether letters look random, not like words: xkQzWvTnbq, MFRGGZDFMZTW."""
    if len(word) < shortest:
        return False
    common = humps = counted = 0
    for one, two in pairwise(word):
        if one.islower() and two.isupper():
            humps += 1
        elif one.isalpha() and two.isalpha():
            counted += 1
            common += (one + two).lower() in COMMON_PAIRS
    if word.islower() or ("_" in word and word.isupper()):  # seldom an id
        return len(word) == counted + 1 and common * 3 < counted
    return common * 20 < counted * 11 or humps * 4 > len(word)


def _url(match: re.Match[str]) -> str:
    scheme, _, rest = match[0].partition("://")
    place = re.split(r"[?#]", rest.rpartition("@")[2], maxsplit=1)[0]
    return f"{scheme}://{_path(place.rstrip('/.,;:'))}"


def _path(found: str) -> str:
    """Return a path with its words, without ids and query."""
    bare = re.split(r"[?#]", found, maxsplit=1)[0]
    return "/".join([_step(part) for part in re.split(r"[\\/]", bare)])


def _step(part: str) -> str:
    if part.startswith("tmp") and len(part) > 8:
        return MARK
    if part.isalpha() and len(part) < 12:
        return part
    return _bare(part)


VERSION: Final = "2"
OWN: Final = "own"
"""The version of fingerprints that the application named itself."""

SPLIT: Final = "split"
"""The version of fingerprints of groups that people split off another one."""

OLD: Final = ("1-",)
"""Prefixes of fingerprints of older versions."""

_HASH: Final = blake2b(digest_size=8)
_OLD: Final = re.compile(r"1-[0-9a-f]{16}")


def fingerprint(source: str, failure: Failure) -> str:
    """Return the fingerprint of a failure at a mailbox, version first."""
    if failure.cause:
        return own_fingerprint(source, failure.cause)
    return fingerprint_of(
        source,
        failure.error_type,
        failure.frame,
        failure.text,
        trouble=failure.trouble,
        code=failure.code,
    )


def fingerprint_of(
    source: str,
    error_type: str,
    frame: str,
    text: str,
    *,
    trouble: Trouble = Trouble.UNKNOWN,
    code: str = "",
) -> str:
    """Return the fingerprint of the stored fields of a failure."""
    normalised = normalise(text, error_type)
    if is_own_frame(frame):
        frame = ""
    # Inlined `_named`: this runs for every letter.
    return _hashed(
        VERSION,
        f"{len(source)}:{source}{len(error_type)}:{error_type}{len(trouble)}:{trouble}"
        f"{len(code)}:{code}{len(frame)}:{frame}{len(normalised)}:{normalised}",
    )


def is_own_frame(frame: str) -> bool:
    """Return whether a frame belongs to this package, whose modules may move."""
    return frame.startswith(("deadletter.", "deadletter:"))


def own_fingerprint(source: str, cause: str) -> str:
    """Return the fingerprint of a cause that the application named itself."""
    return _named(OWN, (source, cause))


def split_name(group: str, query: str) -> str:
    """Return the fingerprint of a group that people split off another one by a search."""
    return _named(SPLIT, (group, query))


def of_head(head: LetterHead, frame: str) -> str:
    """Return the fingerprint of a letter, by its head and the frame it failed in."""
    return fingerprint_of(
        head.source, head.error_type, frame, head.error_text, trouble=head.trouble, code=head.code
    )


def is_old(name: str) -> bool:
    """Return whether a fingerprint has an older version; names by people do not."""
    return name.startswith(OLD) and _OLD.fullmatch(name) is not None


def current(letter: DeadLetter) -> DeadLetter:
    """Return the letter with a fingerprint of this version."""
    if not is_old(letter.head.fingerprint):
        return letter
    name = of_head(letter.head, letter.frame)
    return replace(letter, head=replace(letter.head, fingerprint=name))


def _named(version: str, parts: tuple[str, ...]) -> str:
    # Lengths keep different parts from joining to the same text.
    return _hashed(version, "".join([f"{len(part)}:{part}" for part in parts]))


def _hashed(version: str, told: str) -> str:
    hash_ = _HASH.copy()  # faster than a new one
    hash_.update(told.encode("utf-8", "surrogatepass"))
    return f"{version}-{hash_.hexdigest()}"
