"""
Ways of telling people: a signed webhook, a chat room, e-mail.

Where to is said by the settings and by nothing else. No redirect is followed, answers
are not read, every try has a time limit. What is told are alerts, which hold no part
of any message.
"""

import smtplib
import ssl
from collections.abc import Mapping
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from http.client import HTTPException
from typing import Any, Final, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

import msgspec
from msgspec import Struct

from deadletter.core.alerting import Alert
from deadletter.core.alerts import AlertTarget, TargetKind
from deadletter.core.errors import ConfigError
from deadletter.core.plain import cut, plain_line
from deadletter.core.redact import redact

from .daemon_calls import DaemonCalls
from .signing import secret_of, signed

PATIENCE: Final = 10.0  # seconds for each answer
SHOWN: Final = 20  # alerts in one notice; of more only the number is told
_AGENT: Final = "deadletter"


class Untold(Exception):
    """People could not be told; the text says why."""


class Notice(Struct, frozen=True, kw_only=True):
    """Alerts that are told together."""

    id: str  # the same when it is told again
    at: datetime
    alerts: tuple[Alert, ...]
    more: int = 0  # that are not among them

    @property
    def title(self) -> str:
        """All of it in one line."""
        count = len(self.alerts) + self.more
        rest = f" (and {count - 1:,} more)" if count > 1 else ""
        return plain_line(cut(self.alerts[0].text, 150)) + rest


class Teller(Protocol):
    """Somebody who tells people."""

    kind: TargetKind

    async def tell(self, notice: Notice) -> None:
        """Tell them; raises Untold."""


def teller_of(target: AlertTarget) -> Teller:
    """Who tells those at a target; a ConfigError when the target cannot be."""
    if target.kind is TargetKind.EMAIL:
        return _Email(target)
    check_url(target.to, "alerts")
    return _Webhook(target) if target.kind is TargetKind.WEBHOOK else _Slack(target)


def check_url(text: str, what: str) -> None:
    """Refuse a URL that nothing can be posted to."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(
            f"{what} cannot go to {redact(text)!r}: give an http:// or https:// URL"
        )


class Webhook:
    """A URL that takes JSON, signed if there is a secret to sign with."""

    def __init__(self, url: str, secret: str | None = None) -> None:
        self._calls = DaemonCalls()
        self._url = url
        self._secret = secret_of(secret) if secret else None

    async def post(self, kind: str, id_: str, at: datetime, data: object) -> None:
        """Post something; raises Untold."""
        body = msgspec.json.encode({"type": kind, "timestamp": at, "data": data})
        seconds = int(at.timestamp())
        headers = {"webhook-id": id_, "webhook-timestamp": str(seconds)}
        if self._secret is not None:
            headers["webhook-signature"] = signed(self._secret, id_, seconds, body)
        await _post(self._calls, self._url, body, headers)


class _Webhook:
    kind = TargetKind.WEBHOOK

    def __init__(self, target: AlertTarget) -> None:
        self._webhook = Webhook(target.to, target.secret)

    async def tell(self, notice: Notice) -> None:
        """Post it as JSON, signed if there is a secret to sign with."""
        data = {"alerts": notice.alerts, "more": notice.more}
        await self._webhook.post("deadletter.alerts", notice.id, notice.at, data)


class _Slack:
    kind = TargetKind.SLACK

    def __init__(self, target: AlertTarget) -> None:
        self._calls = DaemonCalls()
        self._url = target.to

    async def tell(self, notice: Notice) -> None:
        """Post it as a text for people."""
        lines = [f"• {_for_slack(alert)}" for alert in notice.alerts]
        if notice.more:
            lines.append(f"…and {notice.more:,} more")
        text = "\n".join(lines)
        await _post(self._calls, self._url, msgspec.json.encode({"text": text}), {})


def _for_slack(alert: Alert) -> str:
    # Without these nothing is a mention, a link or a broadcast to everybody.
    text = plain_line(alert.text)
    for sign, harmless in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, harmless)
    return text


class _Email:
    kind = TargetKind.EMAIL

    def __init__(self, target: AlertTarget) -> None:
        self._calls = DaemonCalls()
        self._sender = target.sender
        self._to = [one for part in target.to.split(",") if (one := part.strip())]
        self._server = urlsplit(target.server)
        if self._server.scheme not in ("smtp", "smtps") or not self._server.hostname:
            raise ConfigError(
                f"e-mail cannot be given to {redact(target.server)!r}: "
                "give an smtp:// or smtps:// URL"
            )
        odd = [one for one in (self._sender, *self._to) if not _is_address(one)]
        if odd or not self._to:
            raise ConfigError(f"{odd[:1] or target.to!r} is no e-mail address")

    async def tell(self, notice: Notice) -> None:
        """Send it as a plain text."""
        mail = EmailMessage()
        mail["From"], mail["To"] = self._sender, ", ".join(self._to)
        mail["Subject"] = f"[deadletter] {notice.title}"
        mail["Date"] = format_datetime(notice.at)
        mail["Message-ID"] = f"<{notice.id}@{self._sender.rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(_letter(notice))
        try:
            await self._calls.make(3 * PATIENCE, lambda: _send(self._server, mail))
        except (OSError, smtplib.SMTPException) as error:
            raise Untold(f"{self._server.hostname}: {type(error).__name__}") from error


def _letter(notice: Notice) -> str:
    lines = []
    for alert in notice.alerts:
        first, last = (f"{at:%F %T}" for at in (alert.first_seen, alert.last_seen))
        lines += [plain_line(alert.text), f"  first {first}, last {last} UTC"]
        lines += [f"  group {alert.group}"] if alert.group else []
        lines.append("")
    if notice.more:
        lines.append(f"...and {notice.more:,} more")
    return "\n".join(lines)


def _send(server: SplitResult, mail: EmailMessage) -> None:
    host = server.hostname or ""
    if server.scheme == "smtps":
        connection: smtplib.SMTP = smtplib.SMTP_SSL(
            host,
            server.port or 465,
            timeout=PATIENCE,
            context=ssl.create_default_context(),
        )
    else:
        connection = smtplib.SMTP(host, server.port or 25, timeout=PATIENCE)
    with connection:
        if server.username:
            if server.scheme == "smtp":  # a password is never said in clear
                connection.starttls(context=ssl.create_default_context())
            connection.login(unquote(server.username), unquote(server.password or ""))
        connection.send_message(mail)


def _is_address(text: str) -> bool:
    name, at, host = text.rpartition("@")
    return bool(name and at and host) and text.isprintable() and " " not in text


async def _post(
    calls: DaemonCalls, url: str, body: bytes, headers: Mapping[str, str]
) -> None:
    request = Request(  # noqa: S310 -- its scheme has been looked at
        url,
        data=body,
        headers={
            "content-type": "application/json",
            "user-agent": _AGENT,
            **headers,
        },
        method="POST",
    )
    try:
        await calls.make(3 * PATIENCE, lambda: _posted(request))
    except (OSError, HTTPException, ValueError) as error:
        raise Untold(f"{urlsplit(url).hostname}: {_why(error)}") from error


def _posted(request: Request) -> None:
    opener = OpenerDirector()  # which knows of no redirects, files or passwords
    for handler in (
        ProxyHandler(),
        HTTPHandler(),
        HTTPSHandler(context=ssl.create_default_context()),
        HTTPDefaultErrorHandler(),
        HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    try:
        answer: Any = opener.open(request, timeout=PATIENCE)
    except HTTPError as error:
        error.close()
        raise
    answer.close()


def _why(error: Exception) -> str:
    status = getattr(error, "code", None)
    if isinstance(status, int):
        return f"answered {status}"
    reason = error.reason if isinstance(error, URLError) else error
    return type(reason).__name__
