import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StepStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_STATUS_UNSPECIFIED: _ClassVar[StepStatus]
    STEP_STATUS_SUCCESS: _ClassVar[StepStatus]
    STEP_STATUS_FAILURE: _ClassVar[StepStatus]
STEP_STATUS_UNSPECIFIED: StepStatus
STEP_STATUS_SUCCESS: StepStatus
STEP_STATUS_FAILURE: StepStatus

class PipeDoc(_message.Message):
    __slots__ = ("doc_id", "title", "body")
    DOC_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    doc_id: str
    title: str
    body: str
    def __init__(self, doc_id: _Optional[str] = ..., title: _Optional[str] = ..., body: _Optional[str] = ...) -> None: ...

class DocumentReference(_message.Message):
    __slots__ = ("doc_id", "source_node_id", "account_id")
    DOC_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    doc_id: str
    source_node_id: str
    account_id: str
    def __init__(self, doc_id: _Optional[str] = ..., source_node_id: _Optional[str] = ..., account_id: _Optional[str] = ...) -> None: ...

class StepExecutionRecord(_message.Message):
    __slots__ = ("hop", "node_id", "status", "started_at", "ended_at", "error_message")
    HOP_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    hop: int
    node_id: str
    status: StepStatus
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    error_message: str
    def __init__(self, hop: _Optional[int] = ..., node_id: _Optional[str] = ..., status: _Optional[_Union[StepStatus, str]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., error_message: _Optional[str] = ...) -> None: ...

class PipeStream(_message.Message):
    __slots__ = ("stream_id", "document_ref", "current_node_id", "hop_count", "history")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_REF_FIELD_NUMBER: _ClassVar[int]
    CURRENT_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HOP_COUNT_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    document_ref: DocumentReference
    current_node_id: str
    hop_count: int
    history: _containers.RepeatedCompositeFieldContainer[StepExecutionRecord]
    def __init__(self, stream_id: _Optional[str] = ..., document_ref: _Optional[_Union[DocumentReference, _Mapping]] = ..., current_node_id: _Optional[str] = ..., hop_count: _Optional[int] = ..., history: _Optional[_Iterable[_Union[StepExecutionRecord, _Mapping]]] = ...) -> None: ...

class DlqMessage(_message.Message):
    __slots__ = ("stream", "error_type", "error_message", "failed_at", "retry_count", "failed_node_id", "original_topic", "original_offset", "original_partition", "reprocess_count", "letter_id", "original_record")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FAILED_AT_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAILED_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPROCESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    LETTER_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_RECORD_FIELD_NUMBER: _ClassVar[int]
    stream: PipeStream
    error_type: str
    error_message: str
    failed_at: _timestamp_pb2.Timestamp
    retry_count: int
    failed_node_id: str
    original_topic: str
    original_offset: int
    original_partition: int
    reprocess_count: int
    letter_id: str
    original_record: bytes
    def __init__(self, stream: _Optional[_Union[PipeStream, _Mapping]] = ..., error_type: _Optional[str] = ..., error_message: _Optional[str] = ..., failed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., retry_count: _Optional[int] = ..., failed_node_id: _Optional[str] = ..., original_topic: _Optional[str] = ..., original_offset: _Optional[int] = ..., original_partition: _Optional[int] = ..., reprocess_count: _Optional[int] = ..., letter_id: _Optional[str] = ..., original_record: _Optional[bytes] = ...) -> None: ...

class DlqConfig(_message.Message):
    __slots__ = ("enabled", "topic", "max_retries", "retry_backoff", "brake")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    RETRY_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    BRAKE_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    topic: str
    max_retries: int
    retry_backoff: _duration_pb2.Duration
    brake: bool
    def __init__(self, enabled: _Optional[bool] = ..., topic: _Optional[str] = ..., max_retries: _Optional[int] = ..., retry_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., brake: _Optional[bool] = ...) -> None: ...

class GraphNode(_message.Message):
    __slots__ = ("node_id", "module_id", "next_node_ids", "dlq_config", "kafka_input_topic", "timeout")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    DLQ_CONFIG_FIELD_NUMBER: _ClassVar[int]
    KAFKA_INPUT_TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    module_id: str
    next_node_ids: _containers.RepeatedScalarFieldContainer[str]
    dlq_config: DlqConfig
    kafka_input_topic: str
    timeout: _duration_pb2.Duration
    def __init__(self, node_id: _Optional[str] = ..., module_id: _Optional[str] = ..., next_node_ids: _Optional[_Iterable[str]] = ..., dlq_config: _Optional[_Union[DlqConfig, _Mapping]] = ..., kafka_input_topic: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Graph(_message.Message):
    __slots__ = ("cluster_id", "nodes", "max_hops")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    MAX_HOPS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    nodes: _containers.RepeatedCompositeFieldContainer[GraphNode]
    max_hops: int
    def __init__(self, cluster_id: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[GraphNode, _Mapping]]] = ..., max_hops: _Optional[int] = ...) -> None: ...

class ProcessDataRequest(_message.Message):
    __slots__ = ("document", "stream")
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    document: PipeDoc
    stream: PipeStream
    def __init__(self, document: _Optional[_Union[PipeDoc, _Mapping]] = ..., stream: _Optional[_Union[PipeStream, _Mapping]] = ...) -> None: ...

class ProcessDataResponse(_message.Message):
    __slots__ = ("success", "document", "error_message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    document: PipeDoc
    error_message: str
    def __init__(self, success: _Optional[bool] = ..., document: _Optional[_Union[PipeDoc, _Mapping]] = ..., error_message: _Optional[str] = ...) -> None: ...
