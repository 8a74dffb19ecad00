"""dlq classify: what an error would mean."""

import builtins
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from deadletter.core.errors import ConfigError
from deadletter.core.failure.rules import DEFAULT
from deadletter.wiring.serving import read_rules

from .desk import AtDesk
from .options import Text

_ANY: Final = "Exception"  # the type of errors of which none is said


async def classify(
    text: Text = "",
    /,
    *,
    type_: Annotated[str, Parameter(name="--type")] = _ANY,
    status: int | None = None,
    code: str | None = None,
    grpc: str | None = None,
    rules: Path | None = None,
    desk: AtDesk,
) -> None:
    """
    Say what an error would mean: what kind of trouble, its code, and by which rule.

    Args:
        text: The error's text, such as "connection refused".
        type_: The error's type, such as TimeoutError or psycopg.OperationalError.
        status: An HTTP status it carries.
        code: A code it carries, such as ECONNREFUSED or 40P01.
        grpc: A gRPC status it carries, such as UNAVAILABLE.
        rules: A TOML file of rules that are asked first.
    """
    if not text and type_ == _ANY and (status, code, grpc) == (None, None, None):
        raise ConfigError(
            'say what to classify: dlq classify "connection refused", or --type,'
            " --status, --code or --grpc"
        )
    classifier = DEFAULT.extended(*read_rules(rules or desk.settings.rules))
    error = _error(text, type_, status=status, code=code, grpc=grpc)
    verdict = classifier.classify(error, desk.clock.now())
    if desk.as_json:
        desk.document(
            {
                "trouble": verdict.trouble,
                "category": verdict.trouble.category,
                "code": verdict.code,
                "rule": verdict.rule,
                "retry_after": verdict.retry_after,
            }
        )
        return
    again = "worth" if verdict.trouble.category == "RETRYABLE" else "not worth"
    desk.tell(f"trouble  {verdict.trouble} ({again} trying again)")
    desk.tell(f"code     {verdict.code}")
    desk.tell(f"rule     {verdict.rule or '(none: no rule knows it)'}")


def _error(
    text: str, type_: str, *, status: int | None, code: str | None, grpc: str | None
) -> BaseException:
    error = _type(type_)(text)
    facts: dict[str, Any] = {
        "status_code": status,
        "code": code,
        "grpc_status_code": grpc.upper() if grpc else None,
    }
    for name, value in facts.items():
        if value is not None:
            setattr(error, name, value)
    return error


def _type(name: str) -> type[Exception]:
    # Python's own errors have their ancestors; of others only the name is known,
    # and nothing is imported to find out more.
    known = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        base: type[Exception] = known
        return base if _is_plain(base) else type(name, (base,), {"__init__": _plainly})
    module, _, last = name.rpartition(".")
    return type(last or "Exception", (Exception,), {"__module__": module or "builtins"})


def _is_plain(kind: type[Exception]) -> bool:
    try:
        kind("")
    except TypeError:  # UnicodeDecodeError and the like want more than a text
        return False
    return True


def _plainly(self: Exception, text: str) -> None:
    self.args = (text,)
