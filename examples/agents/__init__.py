"""
Agents behind mailboxes: requests, replies, and dead letters for requests that fail.

    requests = RedisMailbox(name="requests", client=redis)
    dead_letters = RedisMailbox(name="requests-dlq", client=redis)
    main_loop = MyMainLoop(
        adapter=adapter,
        requests=requests,
        dlq=DLQPolicy(mailbox=dead_letters, max_delivery_count=5),
    )
    LoopGroup(loops=[main_loop, DLQConsumer(mailbox=dead_letters, handler=alert)]).run()
"""

from .backend import Backend
from .dead_letter import DeadLetter
from .dlq_consumer import DLQConsumer
from .loop_group import LoopGroup
from .loops import EvalLoop, FunctionAdapter, MainLoop, MainLoopConfig, ProviderAdapter
from .mailbox import BackendMailbox, InMemoryMailbox, RedisMailbox
from .message import Mailbox, Message, ReceivedMessage
from .policy import DLQPolicy, ErrorBudgetPolicy, RuledPolicy
from .requests import (
    EvalRequest,
    EvalResult,
    MainLoopRequest,
    MainLoopResult,
    PromptResponse,
    ResourceRegistry,
    Sample,
    Score,
    Session,
)
from .resolvers import CompositeResolver, MailboxResolver, RegistryResolver

__all__ = [
    "Backend",
    "BackendMailbox",
    "CompositeResolver",
    "DLQConsumer",
    "DLQPolicy",
    "DeadLetter",
    "ErrorBudgetPolicy",
    "EvalLoop",
    "EvalRequest",
    "EvalResult",
    "FunctionAdapter",
    "InMemoryMailbox",
    "LoopGroup",
    "Mailbox",
    "MailboxResolver",
    "MainLoop",
    "MainLoopConfig",
    "MainLoopRequest",
    "MainLoopResult",
    "Message",
    "PromptResponse",
    "ProviderAdapter",
    "ReceivedMessage",
    "RedisMailbox",
    "RegistryResolver",
    "ResourceRegistry",
    "RuledPolicy",
    "Sample",
    "Score",
    "Session",
]
