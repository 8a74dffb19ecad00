"""The filter between the console tools of Kafka."""

from io import BytesIO, StringIO

from pipeline.pipestream_pb2 import DlqMessage, PipeStream
from pipeline.streams import parsed
from pipeline.unwrapper import END, unwrap


def envelope(name: str) -> bytes:
    stream = PipeStream(stream_id=name, hop_count=3)
    stream.document_ref.doc_id = "Zoë\n{}"
    message = DlqMessage(stream=stream, error_type="TIMEOUT", failed_node_id="n")
    return message.SerializeToString()


def test_each_envelope_becomes_a_line_with_key_and_stream() -> None:
    target, complaints = StringIO(), StringIO()
    source = BytesIO(b"".join(envelope(name) + END for name in ("s-1", "s-2")))

    skipped = unwrap(source, target, complaints)

    assert (skipped, complaints.getvalue()) == (0, "")
    lines = target.getvalue().splitlines()
    assert [line.partition("\t")[0] for line in lines] == ["s-1", "s-2"]
    for line in lines:
        stream = parsed(line.partition("\t")[2].encode())
        assert stream is not None
        assert stream.hop_count == 3
        assert stream.document_ref.doc_id == "Zoë\n{}"


def test_records_without_a_stream_are_reported_and_left_out() -> None:
    target, complaints = StringIO(), StringIO()
    nothing = DlqMessage(error_type="MALFORMED", error_message="no stream").SerializeToString()
    records = (b"\xff", nothing, envelope("s-1"))

    skipped = unwrap(BytesIO(b"".join(one + END for one in records)), target, complaints)

    assert skipped == 2
    assert len(target.getvalue().splitlines()) == 1
    assert "record 0 is left out: 1 bytes are not a DlqMessage" in complaints.getvalue()
    assert "record 1 is left out: a DlqMessage without a stream" in complaints.getvalue()


def test_a_record_that_was_cut_off_is_reported() -> None:
    complaints = StringIO()

    skipped = unwrap(BytesIO(envelope("s-1")[:-3]), StringIO(), complaints)

    assert skipped == 1
