"""Streams: read from records, and passed on with their history."""

from datetime import datetime

from google.protobuf import json_format
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
    """
    Return the stream in a record, valid or not; None if the record is not a stream.

    Protobuf is read, and protobuf's JSON: console tools of Kafka carry lines of text only. No
    stream in protobuf begins with `{`.
    """
    stream = PipeStream()
    try:
        if body.startswith(b"{"):
            json_format.Parse(body, stream)
        else:
            stream.ParseFromString(body)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError):
        return None
    return stream


def read(body: bytes) -> PipeStream:
    """
    Return the stream in a record.

    Raises `MalformedStream` if the record is not a stream, or has no id or no document.
    """
    stream = parsed(body)
    if stream is None:
        raise MalformedStream(f"record of {len(body)} bytes is not a PipeStream")
    if not stream.stream_id:
        raise MalformedStream("stream has no stream_id")
    if not stream.document_ref.doc_id:
        raise MalformedStream(f"stream {stream.stream_id} refers to no document")
    return stream


def check_hops(stream: PipeStream, limit: int) -> None:
    """Raise `MaxHopsExceeded` for a stream with more than `limit` hops; 0 is no limit."""
    if limit and stream.hop_count > limit:
        raise MaxHopsExceeded(
            f"stream {stream.stream_id} was passed on {stream.hop_count} times,"
            f" at most {limit} are allowed"
        )


def step(
    stream: PipeStream, node_id: str, began: datetime, ended: datetime, error: str
) -> StepExecutionRecord:
    """Return the entry of one node in the history; an error is what its module answered."""
    record = StepExecutionRecord(
        hop=stream.hop_count,
        node_id=node_id,
        status=STEP_STATUS_FAILURE if error else STEP_STATUS_SUCCESS,
        error_message=error,
    )
    record.started_at.FromDatetime(began)
    record.ended_at.FromDatetime(ended)
    return record


def passed_on(
    stream: PipeStream, to: str, reference: DocumentReference, done: StepExecutionRecord
) -> PipeStream:
    """Return the stream as the next node gets it."""
    onward = PipeStream()
    onward.CopyFrom(stream)
    onward.document_ref.CopyFrom(reference)
    onward.current_node_id = to
    onward.hop_count += 1
    onward.history.append(done)
    return onward
