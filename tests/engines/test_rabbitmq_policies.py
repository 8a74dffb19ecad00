"""Limits that operators set by policies, seen through the management API."""

import asyncio
import http.client
from base64 import b64encode
from collections.abc import Iterator

import msgspec
import pytest

from deadletter import App
from deadletter.core.errors import ConfigError, Unavailable
from deadletter.office.doctor import Check, Health, examine
from deadletter.testing.fakes import FakeClock
from engines.rabbitmq_rig import beside, opened, usual
from servers import RabbitMQ
from servers.common import HOST, NotOurs, free_port
from servers.fixtures import server_of


class ManagedRabbitMQ(RabbitMQ):
    """A broker with its management API."""

    def prepare(self) -> None:
        super().prepare()
        self.api = free_port()
        with (self.directory / "rabbitmq.conf").open("a") as settings:
            settings.write(f"management.tcp.port = {self.api}\n")
            settings.write(f"management.tcp.ip = {HOST}\n")
        (self.directory / "enabled_plugins").write_text("[rabbitmq_management].\n")

    @property
    def managed_url(self) -> str:
        return f"{self.url}?management={self.api}"

    def put(self, what: str, **values: object) -> None:
        self._call("PUT", what, values)

    def delete(self, what: str) -> None:
        self._call("DELETE", what, {})

    def _call(self, verb: str, what: str, values: dict[str, object]) -> None:
        connection = http.client.HTTPConnection(HOST, self.api, timeout=20)
        login = b64encode(b"guest:guest").decode()
        body = msgspec.json.encode(values)
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        connection.request(verb, f"/api/{what}", body=body, headers=headers)
        assert connection.getresponse().status in (201, 204, 404)
        connection.close()


managed = server_of(ManagedRabbitMQ)


@pytest.fixture
def broker(managed: ManagedRabbitMQ) -> Iterator[ManagedRabbitMQ]:
    """The broker, without policies before and after."""
    if not managed.ours:
        raise NotOurs(f"{managed.variable()} is set: that server has policies of others")
    yield managed
    for kind in ("policies", "operator-policies"):
        managed.delete(f"{kind}/%2F/few")


def limit_all(
    broker: ManagedRabbitMQ, limit: int, *, pattern: str = "^orders", kind: str = "policies"
) -> None:
    definition = {"delivery-limit": limit}
    broker.put(f"{kind}/%2F/few", pattern=pattern, definition=definition)


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
async def test_a_worker_refuses_to_start_where_a_policy_would_drop_messages(
    broker: ManagedRabbitMQ, kind: str
) -> None:
    limit_all(broker, 2, kind=kind)
    app = App(broker.managed_url, office="memory://", office_durability="none")

    @app.handler("orders")
    async def handle(order: dict) -> None: ...

    async with app:
        with pytest.raises(ConfigError, match="policy 'few' gives the queue orders a"):
            await app.work(asyncio.Event())


async def test_the_place_of_suspects_must_allow_all_attempts(broker: ManagedRabbitMQ) -> None:
    limit_all(broker, 7, pattern="suspects$")

    async with opened(broker.managed_url) as engine:
        few = await engine.broker.conflict("orders", attempts=7)
        many = await engine.broker.conflict("orders", attempts=8)
        endless = await engine.broker.conflict("orders", attempts=0)

    assert few is None
    assert many is not None
    assert "orders.suspects a delivery-limit of 7" in many
    assert "Raise it to 8 or more" in many
    assert endless is not None


async def test_the_doctor_sees_it_on_mailboxes_of_others(broker: ManagedRabbitMQ) -> None:
    async with opened(broker.managed_url) as engine:
        await usual(engine, 1)

    before = await limits(broker.managed_url)
    limit_all(broker, 2)
    after = await limits(broker.managed_url)

    assert before.health is Health.OK
    assert after.health is Health.FAIL
    assert "policy 'few' gives the queue orders a delivery-limit of 2" in after.text


async def test_the_doctor_warns_that_policies_cannot_be_seen(broker: ManagedRabbitMQ) -> None:
    check = await limits(broker.url)

    assert check.health is Health.WARN
    assert "add ?management=15672 to the URL" in check.text


async def test_a_rejected_management_user_is_told_which_tag_it_needs(
    broker: ManagedRabbitMQ,
) -> None:
    broker.put("users/shop", password="secret", tags="")
    broker.put("permissions/%2F/shop", configure=".*", write=".*", read=".*")
    url = broker.managed_url.replace("guest:guest", "shop:secret")

    async with opened(url) as engine:
        with pytest.raises(ConfigError, match="give it the tag `management`"):
            await engine.broker.conflict("orders", attempts=1)


async def test_a_wrong_port_says_so(broker: ManagedRabbitMQ) -> None:
    async with opened(f"{broker.url}?management={free_port()}") as engine:
        with pytest.raises(Unavailable, match=r"\?management= in the URL"):
            await engine.broker.conflict("orders", attempts=1)


async def limits(url: str) -> Check:
    async with beside(url) as engine:
        checks = await examine(engine, FakeClock(), None)
    return next(check for check in checks if check.name == "limits")
