"""gRPC statuses. INTERNAL and UNKNOWN may be anything, so they are unknown."""

from typing import Final

from ..classify import Rule
from ..failure import Trouble

GRPC: Final = (
    Rule(
        id="grpc-try-later",
        trouble=Trouble.TRANSIENT,
        grpc=frozenset(
            {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED"}
            | {"CANCELLED"}
        ),
    ),
    Rule(
        id="grpc-refused",
        trouble=Trouble.PERMANENT,
        grpc=frozenset(
            {"INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED"}
            | {"UNAUTHENTICATED", "FAILED_PRECONDITION", "OUT_OF_RANGE"}
            | {"UNIMPLEMENTED", "DATA_LOSS"}
        ),
    ),
    Rule(
        id="grpc-may-be-anything",
        trouble=Trouble.UNKNOWN,
        grpc=frozenset({"INTERNAL", "UNKNOWN"}),
    ),
)
