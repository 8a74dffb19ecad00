"""
A transaction relayer on SQS: requests come in over HTTP and go out to a chain.

    api            takes transactions, answers how they stand
    main_consumer  hands each transaction to the relayer below, and reads its errors
    dlq_consumer   takes what failed three times, and records the end of it
    consumer       the two above, always together in one process
    stub           the relayer below, played by a small server that can be told to fail
"""
