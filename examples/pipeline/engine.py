"""
The nodes at work: a stream is read, its module is called, the next nodes get the stream.

Retries and dead letters are those of deadletter; this file has what a node does with one stream.
"""

import asyncio
from types import TracebackType
from typing import Any, Self

import structlog

from deadletter import App, Delivery, LogicalFailure
from deadletter.core.events import Observer
from deadletter.observe.logs import line
from deadletter.system import SystemClock

from . import graph, streams
from .discovery import open_discovery
from .dlq import brake_of, policy_of
from .documents import Repository
from .graph import Graph, Node
from .modules import Modules
from .pipestream_pb2 import DocumentReference, PipeStream, StepExecutionRecord
from .settings import Settings

log = structlog.get_logger("pipeline")


def open_pipeline(settings: Settings, observe: Observer | None = None) -> "Pipeline":
    """Return the pipeline of these settings; enter it to connect."""
    app = App(settings.broker, office=settings.office, version=settings.version, observe=observe)
    modules = Modules(open_discovery(settings.modules, token=settings.consul_token))
    return Pipeline(app, graph.load(settings.graph), Repository(settings.documents), modules)


class Pipeline:
    """The nodes of a graph, as handlers of an app."""

    def __init__(self, app: App, nodes: Graph, documents: Repository, modules: Modules) -> None:
        self.app = app
        self.graph = nodes
        self.documents = documents
        self._modules = modules
        self._clock = SystemClock()
        for node in nodes.nodes.values():
            handler = app.handler(node.topic, policy=policy_of(node), brake=brake_of(node))
            handler(self._handler(node))

    async def __aenter__(self) -> Self:
        await self.app.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.app.__aexit__(kind, error, trace)
        await self._modules.close()

    async def submit(self, stream: PipeStream) -> None:
        """Send a stream to the input topic of its current node."""
        node = self.graph.nodes[stream.current_node_id]
        body = stream.SerializeToString()
        await self.app.send(node.topic, body, key=stream.stream_id)

    def _handler(self, node: Node) -> Any:
        async def handle(delivery: Delivery) -> None:
            stream = streams.read(delivery.message.body)
            streams.check_hops(stream, self.graph.max_hops)
            await self._process(node, stream)

        handle.__qualname__ = node.id  # the consumer in letters, `failed_node_id` in messages
        return handle

    async def _process(self, node: Node, stream: PipeStream) -> None:
        began = self._clock.now()
        reference = stream.document_ref
        document = await asyncio.to_thread(self.documents.get, reference)
        answer = await self._modules.process_data(
            node.module_id, document, stream, within=node.timeout
        )
        error = ""
        if not answer.success:
            error = answer.error_message or "the module gave no reason"
            log.warning(
                "module-said-no",
                node_id=node.id,
                module_id=node.module_id,
                stream_id=line(stream.stream_id),
                error_message=line(error),
            )
        elif answer.HasField("document"):
            reference = await asyncio.to_thread(
                self.documents.put,
                answer.document,
                account_id=reference.account_id,
                node_id=node.id,
            )
        done = streams.step(stream, node.id, began, self._clock.now(), error)
        await self._pass_on(node, stream, reference, done)
        if error:
            raise LogicalFailure(error)  # recorded, and not a dead letter: the stream went on

    async def _pass_on(
        self,
        node: Node,
        stream: PipeStream,
        reference: DocumentReference,
        done: StepExecutionRecord,
    ) -> None:
        for to in node.next:
            await self.submit(streams.passed_on(stream, to, reference, done))
