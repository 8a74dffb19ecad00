"""
Notifications for people: by a signed webhook, a chat room or e-mail.

Only the settings name the targets. Redirects are not followed, answers are not read, and
every attempt has a time limit. Notifications contain alerts, and no part of a message.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import smtplib
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from http.client import HTTPException
from threading import Thread
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

from deadletter.core.alerts import Alert, AlertTarget, TargetKind
from deadletter.core.errors import ConfigError
from deadletter.core.redact import redact
from deadletter.core.text import cut, plain_line

# A receiver computes the same, compares in constant time, and rejects requests that are
# older than a few minutes.

PREFIX: Final = "whsec_"
_SHORTEST: Final = 16  # bytes


def secret_of(text: str) -> bytes:
    """Return the bytes to sign with: base64 after `whsec_`, any other text as it is."""
    if text.startswith(PREFIX):
        try:
            secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            raise ConfigError(
                "the secret of a webhook is not valid base64 after whsec_: create a new one"
            ) from None
    else:
        secret = text.encode()
    if len(secret) < _SHORTEST:
        raise ConfigError(f"the secret of a webhook is too short: use at least {_SHORTEST} bytes")
    return secret


def signed(secret: bytes, id: str, seconds: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`."""
    content = f"{id}.{seconds}.".encode() + body
    digest = hmac.new(secret, content, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


class DaemonCalls:
    """
    A runner of blocking calls on a daemon thread, one at a time, each with a time limit.

    Timeouts of libraries apply to each read, so a slow server can block a call without end.
    `make` then raises TimeoutError, and the thread does not keep the process alive. The next
    call is rejected while the last one still runs.
    """

    def __init__(self) -> None:
        self._is_busy = False

    async def make(self, within: float, call: Callable[[], object]) -> None:
        """Make a call; raise its error, or TimeoutError after `within` seconds."""
        if self._is_busy:
            raise TimeoutError("the previous call is still in progress")
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(error: Exception | None) -> None:
            if ended.done():  # it has timed out
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        def run() -> None:
            error = None
            try:
                call()
            except Exception as raised:  # noqa: BLE001 -- raised again in make()
                error = raised
            self._is_busy = False
            with suppress(RuntimeError):  # the event loop has closed
                loop.call_soon_threadsafe(end, error)

        self._is_busy = True
        Thread(target=run, name="dlq-call", daemon=True).start()
        async with asyncio.timeout(within):
            await ended


PATIENCE: Final = 10.0  # seconds for each answer
SHOWN: Final = 20  # alerts in one notice; further alerts are only counted
_AGENT: Final = "deadletter"


class NotificationFailed(Exception):
    """A notification could not be sent; the text says why."""


class Notice(Struct, frozen=True, kw_only=True):
    """Alerts that are sent together."""

    id: str  # the same for each attempt to send it
    at: datetime
    alerts: tuple[Alert, ...]
    more: int = 0  # number of further alerts

    @property
    def title(self) -> str:
        """Return the notice in one line."""
        count = len(self.alerts) + self.more
        more = f" (and {count - 1:,} more)" if count > 1 else ""
        return plain_line(cut(self.alerts[0].text, 150)) + more


class Notifier(Protocol):
    """A way to notify people."""

    kind: TargetKind

    async def notify(self, notice: Notice) -> None:
        """Send a notice; raise NotificationFailed if that fails."""


def notifier_for(target: AlertTarget) -> Notifier:
    """Return the notifier of a target; raise ConfigError for an invalid target."""
    if target.kind is TargetKind.EMAIL:
        return _Email(target)
    check_url(target.to, "alerts")
    return _Webhook(target) if target.kind is TargetKind.WEBHOOK else _Slack(target)


def check_url(text: str, what: str) -> None:
    """Raise ConfigError for a URL that is not http:// or https://."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(
            f"{what} cannot be sent to {redact(text)!r}: give an http:// or https:// URL"
        )


class Webhook:
    """A URL to which JSON is posted, signed if there is a secret."""

    def __init__(self, url: str, secret: str | None = None) -> None:
        self._calls = DaemonCalls()
        self._url = url
        self._secret = secret_of(secret) if secret else None

    async def post(self, kind: str, id_: str, at: datetime, data: object) -> None:
        """Post a document; raise NotificationFailed if that fails."""
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

    async def notify(self, notice: Notice) -> None:
        """Post the notice as JSON, signed if there is a secret."""
        data = {"alerts": notice.alerts, "more": notice.more}
        await self._webhook.post("deadletter.alerts", notice.id, notice.at, data)


class _Slack:
    kind = TargetKind.SLACK

    def __init__(self, target: AlertTarget) -> None:
        self._calls = DaemonCalls()
        self._url = target.to

    async def notify(self, notice: Notice) -> None:
        """Post the notice as a text for people."""
        lines = [f"• {_for_slack(alert)}" for alert in notice.alerts]
        if notice.more:
            lines.append(f"…and {notice.more:,} more")
        text = "\n".join(lines)
        await _post(self._calls, self._url, msgspec.json.encode({"text": text}), {})


def _for_slack(alert: Alert) -> str:
    # Without these characters there are no mentions, links or broadcasts.
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
                f"e-mail cannot be sent through {redact(target.server)!r}: "
                "give an smtp:// or smtps:// URL"
            )
        odd = [one for one in (self._sender, *self._to) if not _is_address(one)]
        if odd or not self._to:
            raise ConfigError(f"{odd[:1] or target.to!r} is not a valid e-mail address")

    async def notify(self, notice: Notice) -> None:
        """Send the notice as plain text."""
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
            raise NotificationFailed(f"{self._server.hostname}: {type(error).__name__}") from error


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
            host, server.port or 465, timeout=PATIENCE, context=ssl.create_default_context()
        )
    else:
        connection = smtplib.SMTP(host, server.port or 25, timeout=PATIENCE)
    with connection:
        if server.username:
            if server.scheme == "smtp":  # a password is never sent in clear
                connection.starttls(context=ssl.create_default_context())
            connection.login(unquote(server.username), unquote(server.password or ""))
        connection.send_message(mail)


def _is_address(text: str) -> bool:
    name, at, host = text.rpartition("@")
    return bool(name and at and host) and text.isprintable() and " " not in text


async def _post(calls: DaemonCalls, url: str, body: bytes, headers: Mapping[str, str]) -> None:
    request = Request(  # noqa: S310 -- check_url() has checked the scheme
        url,
        data=body,
        headers={"content-type": "application/json", "user-agent": _AGENT, **headers},
        method="POST",
    )
    try:
        await calls.make(3 * PATIENCE, lambda: _posted(request))
    except (OSError, HTTPException, ValueError) as error:
        raise NotificationFailed(f"{urlsplit(url).hostname}: {_why(error)}") from error


def _posted(request: Request) -> None:
    opener = OpenerDirector()  # without handlers for redirects, files or passwords
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
