"""
A gateway for courier events: signed webhooks, delivered once or kept as dead letters.

    courier.api         gateway-api: checks signatures and queues events
    courier.worker      gateway-worker: delivers each event to the downstream system, once
    courier.replay      sends dead events back: --limit N
    courier.migration   takes over the collections of a gateway without deadletter
    courier.downstream  a stand-in for the downstream system that fails on request
"""
