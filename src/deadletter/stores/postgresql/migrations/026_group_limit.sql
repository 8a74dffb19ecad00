-- New groups of one source, error type and frame in a day, see core/group_limit.py.
CREATE TABLE deadletter.group_kinds (
    overflow text PRIMARY KEY,  -- the fingerprint of their overflow group
    day      integer NOT NULL,
    made     integer NOT NULL
);
