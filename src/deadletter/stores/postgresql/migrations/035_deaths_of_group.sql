-- The deaths of some groups, by version.
CREATE INDEX deaths_of_group ON deadletter.deaths (fingerprint);
