"""
Pipelines of modules called over gRPC.

A module that answers "no success" is a logical failure: raise `LogicalFailure`.
Modules that cannot be reached or do not answer are transient; a stream that
cannot be read, or has been through too many hops, goes no further.
"""

from typing import Final

from ..classify import Rule
from ..errors import LogicalFailure, Malformed
from ..failure import Trouble
from .grpc import GRPC
from .network import NETWORK

PIPELINE: Final = (
    Rule(id="module-said-no", trouble=Trouble.LOGICAL, types=(LogicalFailure,)),
    Rule(
        id="too-many-hops",
        trouble=Trouble.LOOP,
        code="MAX_HOPS_EXCEEDED",
        name_parts=("MaxHops", "TooManyHops", "HopLimit"),
    ),
    Rule(
        id="says-too-many-hops",
        trouble=Trouble.LOOP,
        code="MAX_HOPS_EXCEEDED",
        texts=("max hops", "maximum hops", "too many hops", "hop limit"),
    ),
    Rule(
        id="malformed-stream",
        trouble=Trouble.MALFORMED,
        code="MALFORMED",
        types=(Malformed,),
    ),
    Rule(
        id="called-malformed",
        trouble=Trouble.MALFORMED,
        code="MALFORMED",
        names=(
            "google.protobuf.message.DecodeError",
            "InvalidPipeStream*",
            "*Malformed*",
            "ValidationError",
        ),
    ),
    Rule(
        id="module-unavailable",
        trouble=Trouble.TRANSIENT,
        code="MODULE_UNAVAILABLE",
        name_parts=("ModuleUnavailable", "ServiceUnavailable", "ServiceDiscovery"),
    ),
    Rule(
        id="module-does-not-answer",
        trouble=Trouble.TRANSIENT,
        code="MODULE_UNAVAILABLE",
        grpc=frozenset({"UNAVAILABLE"}),
    ),
    Rule(
        id="module-timeout",
        trouble=Trouble.TRANSIENT,
        code="TIMEOUT",
        grpc=frozenset({"DEADLINE_EXCEEDED"}),
    ),
    *GRPC,
    *NETWORK,
)
