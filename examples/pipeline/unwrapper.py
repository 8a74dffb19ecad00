"""
A filter from Kafka's console consumer to its console producer: envelopes in, streams out.

    kafka-console-consumer.sh --bootstrap-server HOST --topic dlq.prod.NODE --from-beginning \\
        --timeout-ms 10000 --formatter-property line.separator=@end-of-record@ \\
      | python -m pipeline.unwrapper \\
      | kafka-console-producer.sh --bootstrap-server HOST --topic prod.NODE \\
        --reader-property parse.key=true

Input is what a dead-letter topic holds: a `DlqMessage` per record, and `@end-of-record@` after
each. Output is a line per stream: its id, a tab, and the `PipeStream` in protobuf's JSON, as
the console producer sends lines of text and would break the bytes of protobuf.

Records without a stream are reported on standard error and left out; the exit code is then 1.
"""

import sys
from collections.abc import Iterator
from typing import BinaryIO, Final, TextIO

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from .pipestream_pb2 import DlqMessage, PipeStream

END: Final = b"@end-of-record@"
CHUNK: Final = 65_536  # bytes read at once


def envelopes(source: BinaryIO) -> Iterator[bytes | None]:
    """Yield the record before each end mark; None for one that was cut off."""
    rest = b""
    while chunk := source.read(CHUNK):
        *whole, rest = (rest + chunk).split(END)
        yield from whole
    if rest.strip():
        yield None


def stream_in(record: bytes | None) -> PipeStream:
    """Return the stream in an envelope. Raises `ValueError` if there is none."""
    if record is None:
        raise ValueError(f"it does not end with {END.decode()}")
    try:
        message = DlqMessage.FromString(record)
    except DecodeError:
        raise ValueError(f"{len(record)} bytes are not a DlqMessage") from None
    if not message.HasField("stream"):
        raise ValueError(f"a DlqMessage without a stream: {message.error_message}")
    return message.stream


def line_of(stream: PipeStream) -> str:
    """Return the key and the value of a stream, as one line of text."""
    key = stream.stream_id if stream.stream_id.isprintable() else ""
    return f"{key}\t{json_format.MessageToJson(stream, indent=None)}\n"


def unwrap(source: BinaryIO, target: TextIO, complaints: TextIO) -> int:
    """Write the streams of all envelopes; return the number of records without one."""
    skipped = 0
    for number, record in enumerate(envelopes(source)):
        try:
            target.write(line_of(stream_in(record)))
        except ValueError as error:
            skipped += 1
            print(f"record {number} is left out: {error}", file=complaints)
    target.flush()
    return skipped


if __name__ == "__main__":
    sys.exit(1 if unwrap(sys.stdin.buffer, sys.stdout, sys.stderr) else 0)
