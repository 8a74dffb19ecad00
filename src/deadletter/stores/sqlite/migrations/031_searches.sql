-- Saved searches, see core/saved_search.py. Nothing depends on them.
CREATE TABLE searches (
    name   TEXT NOT NULL PRIMARY KEY,
    search BLOB NOT NULL
) WITHOUT ROWID;
