"""Authentication and authorisation: tokens, sessions and roles."""
