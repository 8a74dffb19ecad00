"""
A gateway for courier events: signed webhooks in, delivered once, or kept with why not.

    courier.api         gateway-api: checks signatures and queues events
    courier.worker      gateway-worker: hands each event to the system downstream, once
    courier.replay      sends dead events back: --limit N
    courier.downstream  a stand-in for the system downstream that fails when told to
"""
