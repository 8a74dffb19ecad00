-- What a group says of its letters goes with the last of them.
UPDATE groups SET text = '', frame = '', code = '' WHERE NOT EXISTS (
    SELECT 1 FROM group_states s
    WHERE s.fingerprint = groups.fingerprint AND s.n > 0);
