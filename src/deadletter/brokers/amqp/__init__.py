"""
A small client for AMQP 0-9-1, as far as RabbitMQ's engine and its drain need it.

It reads and writes frames in bulk and creates no object for each delivery (ADR 12).
References are to the AMQP 0-9-1 specification and to RabbitMQ's extensions of it.

    frames      wire format of the frequent methods: 2.3.5, 4.2.3 to 4.2.7
    channel     one channel: 4.3; acks, publisher confirms, returned messages
    connection  handshake, heartbeats, multiplexing, closing: 2.2.4, 2.3.7, 4.2.2, 4.2.7
    errors      reply codes as our errors: 4.8
    address     amqp:// and amqps:// URLs

Limits, on purpose:

- AMQP 0-9-1 only; AMQP 1.0 and older versions are rejected in the handshake.
- Login by PLAIN only: no EXTERNAL (certificates), no AMQPLAIN, no OAuth token refresh.
- One host for each URL, no failover list. A connection never reconnects: it ends, and
  `Reconnector` opens another one.
- Up to 2,000 channels for each connection, frames of at most 128 KB (131,072 bytes); a
  larger frame ends the connection.
- No transactions (`tx`), no flow control by channel (`channel.flow`), no `immediate`.
- One consumer for each channel: deliveries are not told apart by their consumer tag.
- All messages are published `mandatory`, on channels in confirm mode.
- Bodies and properties are bytes; a whole body is held in memory.
- A malformed frame, an unexpected answer, and a gap in delivery tags end the connection.
  The broker then delivers again: nothing is skipped, nothing is guessed.
"""
