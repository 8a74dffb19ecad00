"""
Dead letters in the shapes of other systems: one module each, `export` and `import_`.

    relayer      a status update of a transaction
    pipeline     `DlqMessage`, as the protobuf has it
    lease_queue  a storage item of a queue server
    mailbox      the dead letter of an agent's mailbox
    courier      the JSON of a courier gateway's dead-letter queue

What a shape has no room for is lost on the way through it; what it carries comes
back as it was, bodies to the byte.
"""
