-- Of the bodies that a key was claimed with: 16 bytes for each of the last four
-- generations. NULL is not known, as for all keys from before.
ALTER TABLE ledger ADD COLUMN digests BLOB;
