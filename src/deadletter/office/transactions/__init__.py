"""
Office transactions: what happens to letters, groups and campaigns, written once.

A transaction is an `async def` over `LetterOperations`. It decides, the store reads and
writes. Each store runs it inside one database transaction.
"""
