"""Streams: read from a record, and handed on with what has happened to them."""

from datetime import datetime

from google.protobuf.message import DecodeError

from .errors import MalformedStream, MaxHopsExceeded
from .pipestream_pb2 import (
    STEP_STATUS_FAILURE,
    STEP_STATUS_SUCCESS,
    DocumentReference,
    PipeStream,
    StepExecutionRecord,
)


def parsed(body: bytes) -> PipeStream | None:
    """The stream that these bytes are, sound or not; None when they are none."""
    stream = PipeStream()
    try:
        stream.ParseFromString(body)
    except DecodeError:
        return None
    return stream


def read(body: bytes) -> PipeStream:
    """
    The stream in a record, fit to be processed.

    Bytes that are no stream, and streams without an id or a document, are malformed.
    """
    stream = parsed(body)
    if stream is None:
        raise MalformedStream(f"{len(body)} bytes that are no PipeStream")
    if not stream.stream_id:
        raise MalformedStream("a stream without an id")
    if not stream.document_ref.doc_id:
        raise MalformedStream(f"stream {stream.stream_id} refers to no document")
    return stream


def check_hops(stream: PipeStream, most: int) -> None:
    """Stop a stream that has been handed on more than `most` times; 0 is no limit."""
    if most and stream.hop_count > most:
        raise MaxHopsExceeded(
            f"stream {stream.stream_id} was handed on {stream.hop_count} times,"
            f" at most {most} are allowed"
        )


def step(
    stream: PipeStream, node_id: str, began: datetime, ended: datetime, error: str
) -> StepExecutionRecord:
    """What the history says of one node; with an error, that its module said no."""
    record = StepExecutionRecord(
        hop=stream.hop_count,
        node_id=node_id,
        status=STEP_STATUS_FAILURE if error else STEP_STATUS_SUCCESS,
        error_message=error,
    )
    record.started_at.FromDatetime(began)
    record.ended_at.FromDatetime(ended)
    return record


def handed_on(
    stream: PipeStream, to: str, reference: DocumentReference, done: StepExecutionRecord
) -> PipeStream:
    """The stream as the next node gets it."""
    onward = PipeStream()
    onward.CopyFrom(stream)
    onward.document_ref.CopyFrom(reference)
    onward.current_node_id = to
    onward.hop_count += 1
    onward.history.append(done)
    return onward
