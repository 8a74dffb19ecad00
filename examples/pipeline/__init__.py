"""
A document pipeline on Kafka: nodes that call modules over gRPC.

    graph.py      nodes, their topics, and the retries of each
    streams.py    reading streams, and passing them on with their history
    documents.py  the repository that streams refer to
    discovery.py  the addresses of modules: from a file, or from Consul
    modules.py    calling modules
    dlq.py        the policy of a node, and the DlqMessage in its dead-letter topic
    engine.py     the nodes at work
    unwrapper.py  a filter between Kafka's console consumer and console producer
"""
