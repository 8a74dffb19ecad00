"""
Finding modules and calling them.

Where modules are is a JSON file, `{"chunker": "10.0.0.7:9090"}`, which whatever runs
them keeps up to date. It is read for every call: a module that moved is found.
"""

from pathlib import Path
from typing import Any, Final

import grpc  # type: ignore[import-untyped]
import msgspec

from .errors import ModuleFailed, ModuleTimeout, ModuleUnavailable
from .pipestream_pb2 import PipeDoc, PipeStream, ProcessRequest, ProcessResponse

PROCESS: Final = "/pipestream.Module/Process"

ANY_SIZE: Final = (  # documents are as large as they are
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)
# A module that comes back is noticed within a second, not after the two minutes that
# a channel may wait by itself.
_CHANNEL: Final = (
    *ANY_SIZE,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_addresses: Final = msgspec.json.Decoder(dict[str, str])


class Modules:
    """Calls modules, each over one channel for as long as it stays where it is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._channels: dict[str, Any] = {}

    def address(self, module_id: str) -> str:
        """Where a module is."""
        try:
            known = _addresses.decode(self._directory.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise ModuleUnavailable(f"module {module_id} cannot be looked up: {error}") from error
        if module_id not in known:
            raise ModuleUnavailable(f"module {module_id} is not registered")
        return known[module_id]

    async def process(
        self, module_id: str, document: PipeDoc, stream: PipeStream, *, within: float
    ) -> ProcessResponse:
        """
        What a module makes of a document.

        `ModuleUnavailable` and `ModuleTimeout` are worth another try, `ModuleFailed`
        is not.
        """
        address = self.address(module_id)
        request = ProcessRequest(document=document, stream=stream)
        where = f"module {module_id} at {address}"
        try:
            answer: ProcessResponse = await self._call(address)(request, timeout=within)
        except grpc.aio.AioRpcError as error:
            told = f"{where}: {error.details()}"
            match error.code():
                case grpc.StatusCode.UNAVAILABLE:
                    raise ModuleUnavailable(told) from error
                case grpc.StatusCode.DEADLINE_EXCEEDED:
                    late = f"{where} did not answer within {within:g} s"
                    raise ModuleTimeout(late) from error
                case other:
                    raise ModuleFailed(told, other.name) from error
        return answer

    async def close(self) -> None:
        """Hang up."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    def _call(self, address: str) -> Any:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, _CHANNEL)
        return self._channels[address].unary_unary(
            PROCESS,
            request_serializer=ProcessRequest.SerializeToString,
            response_deserializer=ProcessResponse.FromString,
        )
