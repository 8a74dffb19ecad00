"""
A document pipeline on Kafka: nodes that call modules over gRPC.

    graph.py      which nodes there are, their topics, how patient each is
    streams.py    what travels: read, checked, handed on with its history
    documents.py  the repository that streams refer to
    modules.py    finding modules and calling them
    dlq.py        a node's policy, and the DlqMessage in its dead-letter topic
    engine.py     the nodes at work
"""
