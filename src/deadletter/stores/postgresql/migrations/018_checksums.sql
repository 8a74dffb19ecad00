-- A checksum of id, body and extra, made by whoever sent it; NULL of what has none.
ALTER TABLE deadletter.messages ADD COLUMN crc bigint;
