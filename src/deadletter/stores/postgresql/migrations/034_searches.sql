-- Saved searches, see core/saved_search.py. Nothing depends on them.
CREATE TABLE deadletter.searches (
    name   text  NOT NULL PRIMARY KEY,
    search bytea NOT NULL
);
