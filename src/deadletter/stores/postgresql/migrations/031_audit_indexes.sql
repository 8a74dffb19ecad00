-- The audit is read by whoever acted, and by what was done.
CREATE INDEX audit_by_actor ON deadletter.audit ("left"(actor, 200), seq);
CREATE INDEX audit_by_action ON deadletter.audit ("left"(action, 200), seq);
