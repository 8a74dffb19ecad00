"""
A module: a gRPC server that makes one document of another.

    with ModuleServer(lambda request: ProcessDataResponse(success=True)) as server:
        server.address

`python -m pipeline.module_server capitals` runs one that writes documents in capital letters;
`count` adds the number of words. The file MODULE_MOOD changes what it does: `refuse` answers
`success=false`, `slow` takes 30 seconds, `crash` ends the process, `raise` fails like a bug.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc  # type: ignore[import-untyped]

from .modules import ANY_SIZE, METHOD, SERVICE
from .pipestream_pb2 import PipeDoc, ProcessDataRequest, ProcessDataResponse

ProcessData = Callable[[ProcessDataRequest], ProcessDataResponse]


class Abort(Exception):
    """End a call with a gRPC status instead of a response."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = grpc.StatusCode[status]


class ModuleServer:
    """A server on a port of its own, from entering to leaving it."""

    def __init__(self, process_data: ProcessData, *, port: int = 0) -> None:
        def handle(request: ProcessDataRequest, context: Any) -> ProcessDataResponse:
            try:
                return process_data(request)
            except Abort as abort:
                context.abort(abort.status, str(abort))
                raise

        self._server = grpc.server(ThreadPoolExecutor(8), options=ANY_SIZE)
        method = grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=ProcessDataRequest.FromString,
            response_serializer=ProcessDataResponse.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})
        self._server.add_generic_rpc_handlers((service,))
        self.port: int = self._server.add_insecure_port(f"127.0.0.1:{port}")

    @property
    def address(self) -> str:
        """The address that other processes call."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop(grace=0).wait()


def capitals(text: str) -> str:
    """Return the text in capital letters."""
    return text.upper()


def count(text: str) -> str:
    """Return the text with the number of its words."""
    return f"{text} ({len(text.split())} words)"


def moody(work: Callable[[str], str], mood: Path) -> ProcessData:
    """Return a module that does its work, or what the file `mood` says."""

    def process_data(request: ProcessDataRequest) -> ProcessDataResponse:
        document = request.document
        match mood.read_text().strip() if mood.exists() else "":
            case "refuse":
                return ProcessDataResponse(error_message="no text in this document")
            case "slow":
                time.sleep(30)
            case "crash":
                os._exit(1)
            case "raise":
                raise KeyError("language")
        made = PipeDoc(doc_id=document.doc_id, title=document.title, body=work(document.body))
        return ProcessDataResponse(success=True, document=made)

    return process_data


def main() -> None:
    """Serve until told to stop."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    mood = Path(os.environ.get("MODULE_MOOD", "mood"))
    work = {"capitals": capitals, "count": count}[sys.argv[1]]
    with ModuleServer(moody(work, mood), port=int(os.environ["MODULE_PORT"])) as server:
        print(f"listening on {server.address}", flush=True)
        told.wait()


if __name__ == "__main__":
    main()
