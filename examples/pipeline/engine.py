"""
The nodes at work: a stream comes in, its module is asked, the next nodes get it.

Retries, dead letters and their order of effects are deadletter's; what is said here is
what a node does with one stream.
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
from .dlq import policy_of
from .documents import Repository
from .graph import PROFILE, Graph, Node
from .modules import Modules
from .pipestream_pb2 import DocumentReference, PipeStream, StepExecutionRecord
from .settings import Settings

log = structlog.get_logger("pipeline")


def opened(settings: Settings, observe: Observer | None = None) -> "Pipeline":
    """The pipeline that the settings describe; nothing runs yet."""
    app = App(settings.broker, office=settings.office, version=settings.version, observe=observe)
    return Pipeline(
        app, graph.load(settings.graph), Repository(settings.documents), Modules(settings.modules)
    )


class Pipeline:
    """Every node of a graph, as handlers of an app."""

    def __init__(self, app: App, nodes: Graph, documents: Repository, modules: Modules) -> None:
        self.app = app
        self.graph = nodes
        self.documents = documents
        self._modules = modules
        self._clock = SystemClock()
        for node in nodes.nodes.values():
            policy, brake = policy_of(node), PROFILE.brake
            app.handler(node.topic, policy=policy, brake=brake)(self._handler(node))

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
        """Put a stream before the node it is addressed to."""
        node = self.graph.nodes[stream.current_node_id]
        body = stream.SerializeToString()
        await self.app.send(node.topic, body, key=stream.stream_id)

    def _handler(self, node: Node) -> Any:
        async def handle(delivery: Delivery) -> None:
            stream = streams.read(delivery.message.body)
            streams.check_hops(stream, self.graph.max_hops)
            await self._process(node, stream)

        handle.__qualname__ = node.id  # letters say which node gave up
        return handle

    async def _process(self, node: Node, stream: PipeStream) -> None:
        began = self._clock.now()
        reference = stream.document_ref
        document = await asyncio.to_thread(self.documents.get, reference)
        answer = await self._modules.process(node.module_id, document, stream, within=node.timeout)
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
        elif answer.HasField("output_document"):
            reference = await asyncio.to_thread(
                self.documents.put,
                answer.output_document,
                account_id=reference.account_id,
                node_id=node.id,
            )
        done = streams.step(stream, node.id, began, self._clock.now(), error)
        await self._hand_on(node, stream, reference, done)
        if error:
            raise LogicalFailure(error)  # noted and done with: the stream went on

    async def _hand_on(
        self,
        node: Node,
        stream: PipeStream,
        reference: DocumentReference,
        done: StepExecutionRecord,
    ) -> None:
        for to in node.next:
            await self.submit(streams.handed_on(stream, to, reference, done))
