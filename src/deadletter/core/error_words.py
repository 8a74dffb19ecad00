"""
Tables for telling causes apart: which names and numbers of a text belong to its cause.

Everything that is not in here and looks like data vanishes, see `core.normaliser`.
"""

from http import HTTPStatus
from typing import Final


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
"""Words in front of a quoted name that is part of the cause: column "amout"."""

NAMING_PHRASES: Final = (
    *("has no attribute", "object has no", "object is not", "object cannot", "object"),
    *("is not defined", "is not a function", "is not a valid", "is not a constructor"),
    *("is a required", "is required", "is null", "is undefined", "codec can"),
    *("was not present in", "not supported between", "has no property", "is missing"),
    *("field is required", "is an invalid keyword", "is abstract", "was never awaited"),
)
"""Words behind a quoted name that is part of the cause: 'x' is not defined."""

SPEAKING_WORDS: Final = _words(
    """
    code desc description detail details err errmsg error errors exception fault
    message msg reason status str title type
    """
)
"""Names of quoted sentences that say what went wrong: details = "not found"."""

TYPES_WITH_DIGITS: Final = _words(
    """
    base32 base58 base64 crc32 ec2 float16 float32 float64 h2 http2 http3 i16 i32
    i64 i8 int128 int16 int32 int64 int8 ipv4 ipv6 k8s latin1 md5 oauth2 p12 s3
    sha1 sha256 sha384 sha512 u16 u32 u64 u8 uint16 uint32 uint64 uint8 utf16
    utf32 utf8 utf8mb4 x509
    """
)
"""Words that hold digits and are no ids; numbers of bits tell types apart."""

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
"""Neighbouring letters: five in six of those in words, one in four of those in ids."""

UNITS: Final = (  # no letter may follow
    r"ns|us|µs|ms|s|m|h|d|secs?|seconds?|millis|milliseconds?|mins?|minutes?|hours?|days?"
    r"|[kKMGTP]i?[Bb]|[Bb]ytes?|[kKMGTP]B/s|%"
)
"""What may follow a number and vanishes with it: 30 seconds, 1.49 GiB."""

STATUS_PHRASES: Final = {
    str(int(one)): (one.phrase, one.name, "Client Error", "Server Error")
    for one in HTTPStatus
    if int(one) >= 300
}
"""Status codes of HTTP with the words behind them: 404 Not Found."""

CODE_WORDS: Final = {
    **dict.fromkeys(("http", "occurred"), 3),
    **dict.fromkeys(("status", "signal", "exit", "rc", "returncode"), 3),
    **dict.fromkeys(("code", "errno", "winerror", "val", "sqlstate", "ora"), 6),
    **dict.fromkeys(("error", "err"), 5),
}
"""Words in front of a number that is a code, and the most digits it then has."""

ANSWER_WORDS: Final = frozenset(
    ("returned", "answered", "with", "got", "received", "a")
)
"""Words in front of a status code from 400 on: the bank answered 503."""
