"""
Submission of texts: `python -m pipeline.submission NODE 'some text' …`

Each text becomes a document in the repository, and a stream in the input topic of the node.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from uuid import uuid4

from deadletter import ConfigError

from .engine import Pipeline, open_pipeline
from .pipestream_pb2 import PipeDoc, PipeStream
from .settings import Settings


async def submit(pipeline: Pipeline, node_id: str, texts: Sequence[str]) -> list[str]:
    """Send texts to a node; return the ids of their streams, which are those of the documents."""
    if node_id not in pipeline.graph.nodes:
        raise ConfigError(f"the graph has no node {node_id}")
    ids = []
    for text in texts:
        name = str(uuid4())
        stream = PipeStream(
            stream_id=name,
            document_ref=pipeline.documents.put(PipeDoc(doc_id=name, body=text)),
            current_node_id=node_id,
        )
        await pipeline.submit(stream)
        ids.append(name)
    return ids


async def main(node_id: str, *texts: str) -> None:
    """Submit texts, and print the ids of their streams."""
    async with open_pipeline(Settings.read(os.environ)) as pipeline:
        for stream_id in await submit(pipeline, node_id, texts):
            print(stream_id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
