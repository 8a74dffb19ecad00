"""
The graph: nodes, the topics they read, and the retries of each.

A graph is a file in protobuf's JSON. Defaults are those beside the fields in
`pipestream.proto`. An invalid graph is rejected before anything runs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from google.protobuf import json_format
from msgspec import Struct

from deadletter import ConfigError
from deadletter.profiles import PROFILES

from . import pipestream_pb2 as pb

PROFILE: Final = PROFILES["pipeline"]
TRIES: Final = 3
BACKOFF: Final = 1.0  # seconds
TIMEOUT: Final = 10.0  # seconds
MAX_HOPS: Final = 50


class DlqSettings(Struct, frozen=True, kw_only=True):
    """The `DlqConfig` of a node, with its defaults."""

    enabled: bool  # False: nothing is published; the office keeps letters all the same
    topic: str
    tries: int
    backoff: float  # seconds
    brake: bool = False  # True: wait for a module that is unreachable for long


class Node(Struct, frozen=True, kw_only=True):
    """One node of the graph."""

    id: str
    module_id: str
    topic: str
    next: tuple[str, ...]
    timeout: float  # seconds for one call of its module
    dlq: DlqSettings


class Graph(Struct, frozen=True, kw_only=True):
    """The nodes of one cluster, by id."""

    cluster_id: str
    nodes: Mapping[str, Node]
    max_hops: int  # 0: no limit


def load(path: Path) -> Graph:
    """Read the graph in a file. Raises `ConfigError` if it is invalid."""
    try:
        message = json_format.Parse(path.read_bytes(), pb.Graph())
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a graph: {error}") from error
    return read(message)


def read(message: pb.Graph) -> Graph:
    """Return the graph that a message describes. Raises `ConfigError` if it is invalid."""
    cluster = message.cluster_id
    if not cluster:
        raise ConfigError("The graph has no cluster_id: set it, topics are named after it.")
    listed = [_node(cluster, one) for one in message.nodes]
    nodes = {node.id: node for node in listed}
    if len(nodes) < len(listed):
        raise ConfigError("Two nodes of the graph have the same node_id: use one id per node.")
    for node in nodes.values():
        if unknown := set(node.next) - nodes.keys():
            raise ConfigError(
                f"Node {node.id} leads to {min(unknown)}, which is not a node of the graph."
            )
    return Graph(
        cluster_id=cluster,
        nodes=nodes,
        max_hops=message.max_hops if message.HasField("max_hops") else MAX_HOPS,
    )


def dlq_settings(cluster: str, node_id: str, config: pb.DlqConfig) -> DlqSettings:
    """Return the settings in a `DlqConfig`; `max_retries` counts tries, and is at least one."""
    tries = config.max_retries if config.HasField("max_retries") else TRIES
    backoff = BACKOFF
    if config.HasField("retry_backoff"):
        backoff = config.retry_backoff.ToTimedelta().total_seconds()
    if tries < 0 or backoff < 0:
        raise ConfigError(
            f"max_retries and retry_backoff of node {node_id} must not be below 0,"
            f" got {tries} and {backoff:g} s"
        )
    usual = PROFILE.dead_queue("", cluster=cluster, node=node_id)
    return DlqSettings(
        enabled=config.enabled if config.HasField("enabled") else True,
        topic=config.topic or usual or "",
        tries=max(1, tries),
        backoff=backoff,
        brake=config.brake,
    )


def _node(cluster: str, message: pb.GraphNode) -> Node:
    node_id = _uuid(message.node_id)
    timeout = TIMEOUT
    if message.HasField("timeout"):
        timeout = message.timeout.ToTimedelta().total_seconds()
    return Node(
        id=node_id,
        module_id=message.module_id,
        topic=message.kafka_input_topic or f"{cluster}.{node_id}",
        next=tuple(map(_uuid, message.next_node_ids)),
        timeout=timeout,
        dlq=dlq_settings(cluster, node_id, message.dlq_config),
    )


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise ConfigError(f"a node_id must be a UUID, got {text!r}") from None
