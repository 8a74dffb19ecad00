"""Settings from environment variables."""

from pathlib import Path

import pytest

from deadletter import ConfigError
from pipeline.settings import Settings


def test_a_graph_and_a_broker_are_enough() -> None:
    settings = Settings.read({"PIPELINE_GRAPH": "g.json", "PIPELINE_BROKER": "kafka://b"})

    assert settings == Settings(graph=Path("g.json"), broker="kafka://b")
    assert settings.metrics_port is None


def test_every_setting_has_a_variable() -> None:
    settings = Settings.read(
        {
            "PIPELINE_GRAPH": "g.json",
            "PIPELINE_BROKER": "kafka://b",
            "PIPELINE_OFFICE": "postgresql://office",
            "PIPELINE_DOCUMENTS": "docs",
            "PIPELINE_MODULES": "http://consul:8500?dc=eu",
            "PIPELINE_CONSUL_TOKEN": "s3cret",
            "PIPELINE_VERSION": "1.8",
            "PIPELINE_METRICS_PORT": "9100",
            "PIPELINE_HEALTH_PORT": "9101",
        }
    )

    assert settings == Settings(
        graph=Path("g.json"),
        broker="kafka://b",
        office="postgresql://office",
        documents=Path("docs"),
        modules="http://consul:8500?dc=eu",
        consul_token="s3cret",
        version="1.8",
        metrics_port=9100,
        health_port=9101,
    )


@pytest.mark.parametrize("missing", ["PIPELINE_GRAPH", "PIPELINE_BROKER"])
def test_missing_settings_are_named(missing: str) -> None:
    given = {"PIPELINE_GRAPH": "g.json", "PIPELINE_BROKER": "kafka://b", missing: ""}

    with pytest.raises(ConfigError, match=missing):
        Settings.read(given)


def test_a_port_must_be_a_number() -> None:
    given = {"PIPELINE_GRAPH": "g", "PIPELINE_BROKER": "b"}

    with pytest.raises(ConfigError, match="PIPELINE_HEALTH_PORT"):
        Settings.read({**given, "PIPELINE_HEALTH_PORT": "http"})
