"""Addresses of modules: from a file, and from a real Consul."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from deadletter import ConfigError
from pipeline.discovery import AddressFile, Consul, Discovery, open_discovery
from pipeline.errors import ModuleUnavailable
from servers import Consul as ConsulServer
from servers import Server
from stage import Stage
from systems.pipeline.rig import Rig, served

pytestmark = pytest.mark.xdist_group("kafka_server")


@pytest.fixture
def consul(consul_server: Server) -> ConsulServer:
    assert isinstance(consul_server, ConsulServer)
    return consul_server


@contextmanager
def registered(consul: ConsulServer, service: str, *addresses: str) -> Iterator[None]:
    for address in addresses:
        consul.register(service, address)
    yield
    for address in addresses:
        consul.deregister(service, address)


def looked_up(discovery: Discovery, module_id: str, times: int = 1) -> list[str]:
    async def ask() -> list[str]:
        try:
            return [await discovery.address(module_id) for _ in range(times)]
        finally:
            await discovery.close()

    return asyncio.run(ask())


def in_consul(consul: ConsulServer, module_id: str, times: int = 1) -> list[str]:
    return looked_up(open_discovery(consul.url, token=consul.token), module_id, times)


def test_a_url_is_consul_and_anything_else_a_file() -> None:
    assert isinstance(open_discovery("http://127.0.0.1:8500"), Consul)
    assert isinstance(open_discovery("https://consul.example?dc=eu"), Consul)
    assert isinstance(open_discovery("modules.json"), AddressFile)
    with pytest.raises(ConfigError, match="must name a host"):
        open_discovery("http://?dc=eu")


def test_an_address_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "modules.json"
    file.write_text('{"parser": "10.0.0.7:9090"}')

    assert looked_up(open_discovery(str(file)), "parser") == ["10.0.0.7:9090"]
    with pytest.raises(ModuleUnavailable, match="module chunker is not registered"):
        looked_up(open_discovery(str(file)), "chunker")


def test_a_healthy_instance_is_found_in_consul(consul: ConsulServer) -> None:
    with registered(consul, "parser", "10.0.0.7:9090"):
        assert in_consul(consul, "parser") == ["10.0.0.7:9090"]


def test_healthy_instances_take_turns(consul: ConsulServer) -> None:
    addresses = ("10.0.0.7:9090", "10.0.0.8:9091")
    with registered(consul, "parser", *addresses):
        found = in_consul(consul, "parser", times=4)

    assert sorted(found[:2]) == sorted(addresses)
    assert found[:2] == found[2:]


def test_instances_that_fail_their_checks_are_not_called(consul: ConsulServer) -> None:
    with registered(consul, "parser", "10.0.0.7:9090", "10.0.0.8:9091"):
        consul.fail_check("parser", "10.0.0.7:9090")
        assert set(in_consul(consul, "parser", times=4)) == {"10.0.0.8:9091"}

        consul.fail_check("parser", "10.0.0.8:9091")
        with pytest.raises(ModuleUnavailable, match="no instance of module parser passes"):
            in_consul(consul, "parser")


def test_a_module_that_consul_does_not_have(consul: ConsulServer) -> None:
    with pytest.raises(ModuleUnavailable, match="module nobody is not registered in Consul"):
        in_consul(consul, "nobody")


def test_the_token_is_sent_to_consul(consul: ConsulServer) -> None:
    """Without a token this Consul shows no service."""
    with registered(consul, "parser", "10.0.0.7:9090"):
        with pytest.raises(ModuleUnavailable):
            looked_up(open_discovery(consul.url), "parser")
        assert in_consul(consul, "parser") == ["10.0.0.7:9090"]


def test_refusals_of_consul_are_reported(consul: ConsulServer) -> None:
    where = open_discovery(f"{consul.url}?dc=nowhere", token=consul.token)

    with pytest.raises(ModuleUnavailable, match="parser cannot be looked up: Consul answered 5"):
        looked_up(where, "parser")


@pytest.fixture(scope="module")
def small(kafka_server: Server, consul_server: Server) -> Iterator[Rig]:
    """A pipeline of one node, whose modules are in Consul."""
    assert isinstance(consul_server, ConsulServer)
    node = {"moduleId": "extractor", "dlqConfig": {"retryBackoff": "0.2s"}}
    with Stage() as stage:
        rig = Rig(stage, kafka_server.url, {"only": node})
        rig.environ |= {
            "PIPELINE_MODULES": consul_server.url,
            "PIPELINE_CONSUL_TOKEN": consul_server.token,
        }
        with served(rig), closing(rig):
            rig.engine()
            yield rig


def test_modules_in_consul_are_called(small: Rig, consul: ConsulServer) -> None:
    stream = small.stream("only")
    with registered(consul, "extractor", small.address):
        small.send("only", stream)
        small.calls(stream, 1)


def test_modules_that_consul_does_not_have_end_in_the_topic(small: Rig) -> None:
    stream = small.stream("only")
    small.send("only", stream)

    dead = small.death_of("only", stream).message

    assert dead.error_type == "MODULE_UNAVAILABLE"
    assert dead.error_message == "module extractor is not registered in Consul"
    assert dead.retry_count == 3


def test_streams_are_published_while_consul_is_down(small: Rig, consul: ConsulServer) -> None:
    consul.kill()
    stream = small.stream("only")
    small.send("only", stream)

    dead = small.death_of("only", stream).message

    assert dead.error_type == "MODULE_UNAVAILABLE"
    assert dead.error_message.startswith("module extractor cannot be looked up: Consul")
    assert dead.retry_count == 3
    assert small.modules.of(stream.stream_id) == []
