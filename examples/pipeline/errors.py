"""
What can stop a stream, in words the pipeline profile's rules know.

Only the first two are worth another try; the others end in the dead-letter topic at
once. A module that answers "no success" is none of these: the stream goes on.
"""

from deadletter import Malformed


class ModuleUnavailable(Exception):
    """The module cannot be found, or nobody answers where it should be."""


class ModuleTimeout(TimeoutError):
    """The module did not answer in time."""


class ModuleFailed(Exception):
    """The call ended with another status of gRPC: that will not get better."""

    def __init__(self, text: str, status: str) -> None:
        super().__init__(text)
        self.grpc_status_code = status  # by which rules know it


class MaxHopsExceeded(Exception):
    """The stream has been handed on more often than its graph allows."""


class MalformedStream(Malformed):
    """Not a stream, or one that names no document."""


class DocumentMissing(Malformed):
    """The stream refers to a document that the repository does not have."""


class MalformedDocument(Malformed):
    """What the repository has there is not the document that the stream names."""
