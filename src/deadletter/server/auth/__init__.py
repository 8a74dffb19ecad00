"""Who comes in: tokens, sessions, and what each may do."""
