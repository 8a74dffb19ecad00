"""
The errors of the pipeline, with names that the rules of the profile know.

`ModuleUnavailable` and `ModuleTimeout` are retried. The others send the stream to the
dead-letter topic at once. `success=false` is not an error: the stream goes on.
"""

from deadletter import Malformed


class ModuleUnavailable(Exception):
    """The module cannot be found, or does not accept the call."""


class ModuleTimeout(TimeoutError):
    """The module did not answer in time."""


class ModuleFailed(Exception):
    """The call ended with a gRPC status that a retry would not change."""

    def __init__(self, text: str, status: str) -> None:
        super().__init__(text)
        self.grpc_status_code = status  # read by the rules of the profile


class MaxHopsExceeded(Exception):
    """The stream was passed on more often than its graph allows."""


class MalformedStream(Malformed):
    """The record is not a stream, or the stream refers to no document."""


class DocumentMissing(Malformed):
    """The stream refers to a document that the repository does not have."""


class MalformedDocument(Malformed):
    """The document in the repository is not the one that the stream refers to."""
