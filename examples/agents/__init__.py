"""
Agents behind mailboxes: requests, replies, and dead letters when it does not work out.

    requests = RedisMailbox(name="requests", client=post, body_type=...)
    dead_letters = RedisMailbox(name="requests-dlq", client=post, body_type=...)
    main_loop = MainLoop(
        adapter=adapter,
        requests=requests,
        dlq=DLQPolicy(mailbox=dead_letters, max_delivery_count=5),
    )
    LoopGroup(loops=[main_loop, DLQConsumer(mailbox=dead_letters, handler=alert)]).run()
"""

from .consumer import DLQConsumer
from .letters import DeadLetter
from .loops import EvalLoop, MainLoop, MainLoopConfig
from .mailbox import InMemoryMailbox, PostMailbox, RedisMailbox
from .message import Mailbox, Message
from .policy import DLQPolicy, ErrorBudgetPolicy, RuledPolicy
from .post import Post
from .requests import (
    EvalRequest,
    EvalResult,
    MainLoopRequest,
    MainLoopResult,
    Sample,
    Score,
    Session,
)
from .resolvers import CompositeResolver, MailboxResolver, RegistryResolver
from .running import LoopGroup

__all__ = [
    "CompositeResolver",
    "DLQConsumer",
    "DLQPolicy",
    "DeadLetter",
    "ErrorBudgetPolicy",
    "EvalLoop",
    "EvalRequest",
    "EvalResult",
    "InMemoryMailbox",
    "LoopGroup",
    "Mailbox",
    "MailboxResolver",
    "MainLoop",
    "MainLoopConfig",
    "MainLoopRequest",
    "MainLoopResult",
    "Message",
    "Post",
    "PostMailbox",
    "RedisMailbox",
    "RegistryResolver",
    "RuledPolicy",
    "Sample",
    "Score",
    "Session",
]
