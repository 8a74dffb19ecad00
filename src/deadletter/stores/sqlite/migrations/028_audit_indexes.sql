-- The audit is read by whoever acted, and by what was done.
CREATE INDEX audit_by_actor ON audit (actor);
CREATE INDEX audit_by_action ON audit (action);
