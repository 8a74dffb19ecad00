"""Webhooks, chat rooms and e-mail, told through real servers."""

import asyncio
import base64
import hashlib
import hmac
import threading
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from deadletter.core.alerts import Alert, AlertKind, AlertTarget, TargetKind
from deadletter.core.errors import ConfigError
from deadletter.observe import notifications as telling
from deadletter.observe.notifications import Notice, NotificationFailed, notifier_for
from observe.receivers import Hook, PostOffice, listening
from office.making import NOW

SECRET = b"sixteen bytes or more"
WHSEC = "whsec_" + base64.b64encode(SECRET).decode()


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    hook = Hook()
    async with listening(hook, "http"):
        yield hook


@pytest.fixture
async def post() -> AsyncIterator[PostOffice]:
    post = PostOffice()
    async with listening(post, "smtp"):
        yield post


def alert(text: str = "ValueError in orders is new: 3 letters") -> Alert:
    return Alert(
        id="new-group:f1",
        kind=AlertKind.NEW_GROUP,
        text=text,
        source="orders",
        count=3,
        first_seen=NOW - timedelta(hours=1),
        last_seen=NOW,
        group="f1",
        error_type="ValueError",
    )


def notice(*alerts: Alert, more: int = 0) -> Notice:
    return Notice(id="n-1", at=NOW, alerts=alerts or (alert(),), more=more)


def webhook(hook: Hook, secret: str | None = WHSEC) -> AlertTarget:
    return AlertTarget(kind=TargetKind.WEBHOOK, to=f"{hook.url}/in?a=b", secret=secret)


async def test_a_webhook_carries_what_there_is_to_know(hook: Hook) -> None:
    await notifier_for(webhook(hook)).notify(notice(more=4))

    told = msgspec.json.decode(hook.bodies[0])
    assert told["type"] == "deadletter.alerts"
    assert told["data"]["more"] == 4
    [one] = told["data"]["alerts"]
    assert one["group"] == "f1"
    assert one["count"] == 3
    assert one["first_seen"] == "2030-01-01T11:00:00Z"
    assert one["last_seen"] == "2030-01-01T12:00:00Z"
    assert hook.headers[0]["content-type"] == "application/json"


async def test_a_webhook_is_signed_so_that_its_receiver_can_tell(hook: Hook) -> None:
    await notifier_for(webhook(hook)).notify(notice())

    headers, body = hook.headers[0], hook.bodies[0]
    stamped = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode()
    digest = hmac.new(SECRET, stamped + body, hashlib.sha256).digest()
    expected = f"v1,{base64.b64encode(digest).decode()}"
    assert headers["webhook-signature"] == expected
    assert headers["webhook-timestamp"] == str(int(NOW.timestamp()))


async def test_without_a_secret_nothing_is_signed(hook: Hook) -> None:
    await notifier_for(webhook(hook, None)).notify(notice())

    assert "webhook-signature" not in hook.headers[0]


@pytest.mark.parametrize(
    "answer", ["500 Oops", "404 Not Found", "302 Found", "308 Permanent Redirect", "garbage"]
)
async def test_rejected_notifications_fail_and_redirects_are_not_followed(
    hook: Hook, answer: str
) -> None:
    elsewhere = Hook()
    async with listening(elsewhere, "http"):
        hook.answers = [f"{answer}\r\nLocation: {elsewhere.url}"]

        with pytest.raises(NotificationFailed) as raised:
            await notifier_for(webhook(hook)).notify(notice())

    assert elsewhere.headers == []
    assert "127.0.0.1" in str(raised.value)
    assert "a=b" not in str(raised.value)  # URLs hold secrets


async def test_notifications_to_unreachable_receivers_fail() -> None:
    target = AlertTarget(kind=TargetKind.SLACK, to="http://127.0.0.1:1/x")

    with pytest.raises(NotificationFailed, match="ConnectionRefusedError"):
        await notifier_for(target).notify(notice())


async def test_slow_receivers_time_out(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "PATIENCE", 0.1)
    hook.hang = True

    with pytest.raises(NotificationFailed, match="imeout"):
        await notifier_for(webhook(hook)).notify(notice())


async def test_a_chat_room_gets_a_text_that_mentions_nobody(hook: Hook) -> None:
    target = AlertTarget(kind=TargetKind.SLACK, to=hook.url)
    hostile = alert("<!channel> & <https://evil.test|click> in orders\nsecond line")

    await notifier_for(target).notify(notice(hostile, more=2))

    text = msgspec.json.decode(hook.bodies[0])["text"]
    first, last = text.split("\n")
    assert "<!channel>" not in text
    assert "<https://evil" not in text
    assert "&lt;!channel&gt; &amp; " in first
    assert last == "…and 2 more"


async def test_a_mail_reaches_everybody_it_is_for(post: PostOffice) -> None:
    target = AlertTarget(
        kind=TargetKind.EMAIL,
        to="anna@shop.test, ben@shop.test",
        server=post.url,
        sender="dlq@shop.test",
    )

    await notifier_for(target).notify(notice(alert(), alert("second"), more=5))

    [mail] = post.mails
    assert post.to == ["anna@shop.test", "ben@shop.test"]
    assert mail["From"] == "dlq@shop.test"
    assert mail["Subject"] == ("[deadletter] ValueError in orders is new: 3 letters (and 6 more)")
    assert mail["Message-ID"] == "<n-1@shop.test>"
    text = mail.get_content()
    assert "first 2030-01-01 11:00:00, last 2030-01-01 12:00:00 UTC" in text
    assert "...and 5 more" in text


async def test_a_name_cannot_forge_a_mail(post: PostOffice) -> None:
    target = AlertTarget(kind=TargetKind.EMAIL, to="anna@shop.test", server=post.url)
    hostile = alert("evil\r\nBcc: all@shop.test\r\n.\r\nQUIT")

    await notifier_for(target).notify(notice(hostile))

    [mail] = post.mails
    assert mail["Bcc"] is None
    assert post.to == ["anna@shop.test"]


async def test_a_mail_that_is_not_taken_is_untold(post: PostOffice) -> None:
    post.refuse = True
    target = AlertTarget(kind=TargetKind.EMAIL, to="anna@shop.test", server=post.url)

    with pytest.raises(NotificationFailed, match=r"127\.0\.0\.1: SMTP"):
        await notifier_for(target).notify(notice())


async def test_a_password_is_never_said_in_clear(post: PostOffice) -> None:
    server = post.url.replace("//", "//anna:hush@")
    target = AlertTarget(kind=TargetKind.EMAIL, to="anna@shop.test", server=server)

    with pytest.raises(NotificationFailed) as raised:  # it offers no encryption
        await notifier_for(target).notify(notice())

    assert not any("AUTH" in line for line in post.said)
    assert post.mails == []
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "target",
    [
        AlertTarget(kind=TargetKind.WEBHOOK, to="file:///etc/passwd"),
        AlertTarget(kind=TargetKind.SLACK, to="ftp://shop.test/x"),
        AlertTarget(kind=TargetKind.SLACK, to="https://"),
        AlertTarget(kind=TargetKind.WEBHOOK, to="https://shop.test", secret="short"),
        AlertTarget(kind=TargetKind.WEBHOOK, to="https://shop.test", secret="whsec_%"),
        AlertTarget(kind=TargetKind.EMAIL, to="not an address"),
        AlertTarget(kind=TargetKind.EMAIL, to=","),
        AlertTarget(kind=TargetKind.EMAIL, to="anna@shop.test", server="http://x"),
        AlertTarget(kind=TargetKind.EMAIL, to="a@b.test", sender="x@y\r\nBcc: z@z"),
    ],
    ids=lambda target: f"{target.kind} {target.to[:12]} {target.secret}",
)
def test_a_target_that_cannot_be_is_refused_at_the_start(target: AlertTarget) -> None:
    with pytest.raises(ConfigError):
        notifier_for(target)


def test_a_secret_is_not_shown() -> None:
    target = AlertTarget(kind=TargetKind.WEBHOOK, to="https://shop.test", secret=WHSEC)

    from deadletter.core.alerts import Alerts
    from deadletter.settings import Settings

    assert WHSEC not in repr(Settings(alerts=Alerts(targets=(target,))))


async def test_an_answer_that_drips_ends_in_time_and_holds_nobody(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "PATIENCE", 0.2)
    hook.drip = True
    before = set(threading.enumerate())
    notifier = notifier_for(webhook(hook))

    async with asyncio.timeout(5.0):
        for _ in range(3):
            with pytest.raises(NotificationFailed, match="TimeoutError"):
                await notifier.notify(notice())

    started = set(threading.enumerate()) - before
    assert all(thread.daemon for thread in started)  # the process can end
    assert len(hook.bodies) == 1  # one call at a time
    hook.drip = False
