-- When brakes were open, see core/brake_window.py. Ids sort by time.
CREATE TABLE deadletter.brake_windows (
    id text COLLATE "C" PRIMARY KEY,
    mailbox text NOT NULL,
    is_closed boolean NOT NULL,
    document bytea NOT NULL,
    release bytea
);
CREATE INDEX brake_windows_of_mailbox ON deadletter.brake_windows (mailbox, id);
