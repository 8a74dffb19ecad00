"""
Calls of modules over gRPC.

A module is a server of the service `pipestream.Module`: `ProcessData` takes a document and its
stream, and answers with `success`, `error_message` and the document it made.
"""

from typing import Any, Final

import grpc  # type: ignore[import-untyped]

from .discovery import Discovery
from .errors import ModuleFailed, ModuleTimeout, ModuleUnavailable
from .pipestream_pb2 import PipeDoc, PipeStream, ProcessDataRequest, ProcessDataResponse

SERVICE: Final = "pipestream.Module"
METHOD: Final = "ProcessData"

ANY_SIZE: Final = (  # documents may be larger than the 4 MB of gRPC
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)
# A module that comes back is noticed within a second, not after the two minutes that a channel
# may wait by itself.
_CHANNEL: Final = (
    *ANY_SIZE,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Modules:
    """Modules by id; one channel for each address."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self._channels: dict[str, Any] = {}

    async def process_data(
        self, module_id: str, document: PipeDoc, stream: PipeStream, *, within: float
    ) -> ProcessDataResponse:
        """
        Ask a module to process a document.

        Raises `ModuleUnavailable` and `ModuleTimeout`, which are retried, and `ModuleFailed`,
        which is not.
        """
        address = await self._discovery.address(module_id)
        request = ProcessDataRequest(document=document, stream=stream)
        where = f"module {module_id} at {address}"
        try:
            answer: ProcessDataResponse = await self._call(address)(request, timeout=within)
        except grpc.aio.AioRpcError as error:
            text = f"{where}: {error.details()}"
            match error.code():
                case grpc.StatusCode.UNAVAILABLE:
                    raise ModuleUnavailable(text) from error
                case grpc.StatusCode.DEADLINE_EXCEEDED:
                    late = f"{where} did not answer within {within:g} s"
                    raise ModuleTimeout(late) from error
                case other:
                    raise ModuleFailed(text, other.name) from error
        return answer

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()
        await self._discovery.close()

    def _call(self, address: str) -> Any:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, _CHANNEL)
        return self._channels[address].unary_unary(
            f"/{SERVICE}/{METHOD}",
            request_serializer=ProcessDataRequest.SerializeToString,
            response_deserializer=ProcessDataResponse.FromString,
        )
