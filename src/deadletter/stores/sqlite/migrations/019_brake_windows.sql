-- When brakes were open, see core/brake_window.py. Ids sort by time.
CREATE TABLE brake_windows (
    id TEXT PRIMARY KEY,
    mailbox NOT NULL,
    is_closed INTEGER NOT NULL,
    document BLOB NOT NULL,
    release BLOB
) WITHOUT ROWID;
CREATE INDEX brake_windows_of_mailbox ON brake_windows (mailbox, id);
